"""Code that suites hold, in JavaScript and Python, and the programs that run it in other processes."""
