"""Gates of a house's own SGLang build: one module, one gate."""
