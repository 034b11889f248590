#pragma once

#include "comm/backends.hpp"

namespace lockstep::comm {

/// A backend from outside the library, made of this folder alone: ranks of one host exchange data
/// through memory that all of them map, in the simplest way. The library's own is `shm`.
const BackendFactory& window_backend();

}  // namespace lockstep::comm
