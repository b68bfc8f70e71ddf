"""The ordered table in HBase: three tables of its own, by way of Thrift.

HBase writes no batch as a whole. So a batch is one record first, the redo record, which
one atomic put of the head makes part of the store; then its rows are written, with a
time of its own, as often as need be. Readers see rows up to the last time that is
settled.
"""
