"""A folder of modules that stand before those installed, in processes of tests."""
