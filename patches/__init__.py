"""The recipes: one folder per engine, one gate per file. Facts only; nothing here reads or writes a file."""
