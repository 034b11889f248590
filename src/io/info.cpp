#include "lockstep/io/info.hpp"

#include <zlib.h>

namespace lockstep::io {

std::vector<Component> components() { return {{"zlib", zlibVersion()}}; }

}  // namespace lockstep::io
