// A file for the target that precompiles googletest's headers for all tests.
