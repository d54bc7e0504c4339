"""A folder of steps as the catalog reads one."""
