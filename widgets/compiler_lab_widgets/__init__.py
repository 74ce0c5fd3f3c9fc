"""Views of compiler_lab: plain data in, self-contained HTML out. Each view is one Python file and one JavaScript file."""
