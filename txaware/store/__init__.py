"""The store: one ordered map in memory, LevelDB or HBase, and the tables in it."""
