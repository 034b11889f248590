// Compiled into programs that the address sanitizer checks. Open MPI unloads its plugins before the
// leak check at exit, which then cannot tell by name that a leak is theirs (tests/support/lsan.supp).
// Weak: a program that links object libraries has one of each.
extern "C" __attribute__((weak)) int dlclose(void*) noexcept { return 0; }
