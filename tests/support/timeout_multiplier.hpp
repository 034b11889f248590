#pragma once

namespace lockstep::testing {

/// How many times slower than usual a test may be: sanitizers slow programs down. The build sets it
/// once for all limits of time, ctest's included (tests/CMakeLists.txt).
inline constexpr int timeout_multiplier = LOCKSTEP_TEST_TIMEOUT_MULTIPLIER;

}  // namespace lockstep::testing
