#include "lockstep/comm/memory.hpp"

#include "comm/communicator_backend.hpp"

namespace lockstep::comm {

IntrusivePtr<Memory> allocate_for(Communicator& group, std::size_t bytes) {
  return group.implementation().allocate(bytes);
}

}  // namespace lockstep::comm
