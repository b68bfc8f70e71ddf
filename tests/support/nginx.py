"""nginx in front of a server: one that passes the upgrade on, and one that does not."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.concurrency import until
from tests.support.database_server import missing
from tests.support.ports import free_port

PATH = f"{os.environ['PATH']}:/usr/sbin"
# What docs/operations.md says.
PASSES_IT_ON = """
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_read_timeout 120s;
            proxy_send_timeout 120s;
"""
CONFIGURATION = """
worker_processes 1;
pid {place}/pid;
error_log {place}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://{server};
            proxy_set_header Host $http_host;{options}
        }}
    }}
}}
"""


@contextmanager
def nginx(place: Path, server_url: str, *, passes_upgrades: bool) -> Iterator[str]:
    """Runs nginx in front of a server, and yields its address."""
    program = shutil.which("nginx", path=PATH) or missing("nginx is not installed")
    port, server = free_port(), urlsplit(server_url).netloc
    options = PASSES_IT_ON if passes_upgrades else ""
    configuration = place / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(place=place, port=port, server=server, options=options)
    )
    command = [program, "-p", str(place), "-c", str(configuration)]
    command += ["-g", "daemon off; master_process off;", "-e", str(place / "error.log")]
    child = subprocess.Popen(command)

    def listens() -> bool:
        assert child.poll() is None, (place / "error.log").read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        assert until(listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(20)
