"""A store that version 0.1.0 wrote before it was killed, with all that it knew.

Messages at once and of transactions, one rolled back, one whose payloads were stored
ahead, one that was open; and a group that has read two messages.
"""

import base64
import io
import zipfile
from pathlib import Path

WRITTEN_MS = 1795614163720

_ZIP = """
UEsDBBQAAAAIAAAAeV2vtJoj4wEAAIgDAAAPAAAAcm93cy8wMDAwMDMubG9nu35rJp8+AyMjAwQwATEje3la
flFuYglnSUVieWJRqoIRI2t5SWZuKgdQcpHQx1OrM//l1VoxMDJDdYF0M3JmwcxQ4gSSAhKvfSdWv/nTAKOB
mhk4gJzJ5388aJhU6VGnzMDIgmwAT3lyfn5RSmZeYkl+EUdqblJqSkpqivGFq41ODIysyCq5S1JS0xJLc0qs
Sqw0qpXSU/NSixJLMvPzlKwUlAyVdBSUSkpyQGwjQxNzEwtjMxNzpVrbPM9tgQyMbMg+lcxFGAQxHOS/Q38Y
GNgYCnISM/Nwq2BkZyhOTc7PS1n9zFokmIGRgwhz/zIwCDGCwqO246dDcn5ubmZJSWoKIuTYeJmhgQRW8WOv
7Z4WRkYumCzIJMUqVJNBausU+w9CbDjMzsCkwMKYCAr/7qaAGsnHeyZbivu6zVtaF1pckJmTk5qiYEjIDKBP
YGbc/O3sfVy9JsDg69KcxSsdWWFmGOHwIUivJRvMPMYioIyWAEga3TFgQXTTcTnsANxzDLJQh7XUmNxfNdNQ
WDlqzypr0baW0ryU/LxUwgYwwgxY9+PF+et/SjI79q93N85b+RNqADwq2BFRAfJKzsd9J6IYGAWQI1k0P90K
YR1YZU98gywjjIVIKgxwgLCAA8kCoGIAUEsDBBQAAAAIAAAAeV19Ice7DwAAABAAAAAMAAAAcm93cy9DVVJS
RU5U83X083RzDQ7RNQABIy4AUEsDBBQAAAAIAAAAeV3KA+g4NAAAADIAAAAUAAAAcm93cy9NQU5JRkVTVC0w
MDAwMDIL+7njhwwDI6NUTmpZak5Kkp5TZUlqeWZxqnN+bkFiUWJJftGSOd37OBgYmZg5GZhZWBgAUEsBAhQD
FAAAAAgAAAB5Xa+0miPjAQAAiAMAAA8AAAAAAAAAAAAAAIABAAAAAHJvd3MvMDAwMDAzLmxvZ1BLAQIUAxQA
AAAIAAAAeV19Ice7DwAAABAAAAAMAAAAAAAAAAAAAACAARACAAByb3dzL0NVUlJFTlRQSwECFAMUAAAACAAA
AHldygPoODQAAAAyAAAAFAAAAAAAAAAAAAAAgAFJAgAAcm93cy9NQU5JRkVTVC0wMDAwMDJQSwUGAAAAAAMA
AwC5AAAArwIAAAAA
"""


def unpack(directory: Path) -> Path:
    """Writes the store into a directory that it makes."""
    directory.mkdir(mode=0o700)
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(_ZIP))) as files:
        files.extractall(directory)
    return directory
