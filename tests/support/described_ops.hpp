#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

/// The names of all ops that sources of src/autograd/ops describe (LOCKSTEP_OP), in alphabetical
/// order; one that is described twice stands there twice. @throws CorruptData without sources.
std::vector<std::string> described_ops();

}  // namespace lockstep::testing
