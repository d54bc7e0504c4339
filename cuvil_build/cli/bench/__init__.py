"""How `cuvil bench` shows what it measured."""
