#pragma once

namespace lockstep::testing {

/// How many times slower than usual a test may be: sanitizers slow programs down. The build sets it
/// once for all limits of time, ctest's included (tests/CMakeLists.txt).
inline constexpr int patience = LOCKSTEP_TEST_PATIENCE;

}  // namespace lockstep::testing
