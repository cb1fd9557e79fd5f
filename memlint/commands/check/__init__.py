"""`memlint check`: targets, rules and source findings, answers of workers, settled findings, Report."""
