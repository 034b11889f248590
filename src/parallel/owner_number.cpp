#include "parallel/owner_number.hpp"

#include <atomic>
#include <cstring>
#include <string>

#include "lockstep/comm/host_values.hpp"

namespace lockstep::parallel {

std::uint64_t agree_on_number(comm::Communicator& group) {
  static std::atomic<std::uint64_t> last{0};
  const std::uint64_t own = ++last;
  std::uint64_t number = 0;
  const std::string agreed = comm::broadcast_bytes(
      group, {reinterpret_cast<const char*>(&own), sizeof own}, 0, "number of a reducer");
  LOCKSTEP_CHECK(agreed.size() == sizeof number, comm::Mismatch,
                 "the number of a reducer arrived in ", agreed.size(), " bytes");
  std::memcpy(&number, agreed.data(), sizeof number);
  return number;
}

}  // namespace lockstep::parallel
