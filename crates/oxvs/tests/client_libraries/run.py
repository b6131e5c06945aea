"""Runs one module of a client library's own functional tests.

usage: run.py RESULT MODULE...   (by scripts/client-libraries.sh, which starts the switch)

Writes the names of failed tests to RESULT, one a line, and prints a line for each test. The exit
status is 0 if the tests could be run, whatever they found.
"""

import sys
import unittest


class Result(unittest.TextTestResult):
    """A result that knows the names of tests that did not pass."""

    def names(self):
        return sorted({test.id() for test, _ in self.failures + self.errors})


def main(result_file, modules):
    if any(module.startswith("vif_plug_ovs") for module in modules):
        # os-vif's tests of the plug-in expect that its application has done this.
        import os_vif

        os_vif.objects.register_all()
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    if unittest.defaultTestLoader.errors:
        sys.exit("\n".join(unittest.defaultTestLoader.errors))
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    with open(result_file, "w", encoding="utf-8") as file:
        file.write(f"{result.testsRun} {len(result.skipped)}\n")
        file.writelines(name + "\n" for name in result.names())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
