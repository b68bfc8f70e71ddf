"""The tables: one ordered map in memory or in LevelDB, and what is kept in it."""
