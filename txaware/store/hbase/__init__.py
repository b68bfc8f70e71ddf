"""The ordered table in HBase: three tables of its own, by way of Thrift.

HBase writes no batch as a whole. So a batch is first one record, the redo record, which
one atomic put of the head makes part of the store. Then its rows are written, with a
timestamp of their own, and again as often as needed. Readers see rows up to the last
timestamp that is settled.
"""
