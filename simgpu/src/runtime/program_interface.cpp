#include "base/faults.hpp"
#include "base/leaks.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {

void inject(std::string_view text) { faults().add(text); }

void clear_faults() { faults().clear(); }

KeepObjects::KeepObjects() { begin_keeping(); }

KeepObjects::~KeepObjects() { end_keeping(); }

}  // namespace simgpu
