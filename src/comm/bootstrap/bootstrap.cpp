#include "lockstep/comm/bootstrap.hpp"

#include <utility>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/bootstrap/host_identity.hpp"
#include "comm/group_registry.hpp"
#include "comm/tcp/socket.hpp"
#include "core/standard_streams.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {

Bootstrap::Bootstrap(std::chrono::milliseconds timeout)
    : timeout_(timeout), groups_(std::make_shared<GroupRegistry>()) {}

// The label goes first. Ranks that are not at the same exchange see it on all.
std::vector<std::string> Bootstrap::all_gather_bytes(std::string_view bytes,
                                                     std::string_view label) {
  constexpr char end = '\0';
  const std::string prefix = std::string(label) + end;
  std::vector<std::string> all;
  try {
    all = exchange(prefix + std::string(bytes));
  } catch (const PeerFailure& error) {
    throw PeerFailure(detail::concat("in the exchange of the ", label, ": ", error.what()));
  } catch (const Timeout& error) {
    throw Timeout(detail::concat("in the exchange of the ", label, ": ", error.what()));
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string theirs = all[rank].substr(0, all[rank].find(end));
    LOCKSTEP_CHECK(theirs == label, Mismatch, "rank ", this->rank(), " exchanges the ", label,
                   ", but rank ", rank, " the ", theirs, "; start the same program on every rank");
    all[rank].erase(0, prefix.size());
  }
  return all;
}

std::string Bootstrap::address() const {
  return is_one_host() ? tcp::loopback_address() : tcp::reachable_address();
}

std::string Bootstrap::broadcast_bytes(std::string_view bytes, int root, std::string_view label) {
  LOCKSTEP_CHECK(root >= 0 && root < size(), InvalidArgument, "broadcast: root must be 0 to ",
                 size() - 1, ", got ", root);
  auto all = all_gather_bytes(rank() == root ? bytes : std::string_view{}, label);
  return std::move(all[static_cast<std::size_t>(root)]);
}

void Bootstrap::discover_peers() {
  for (const std::string& text : all_gather_bytes(to_text(describe_this_process()), "hosts"))
    peers_.push_back(parse_peer(text));
  const LocalPlace place = local_place(peers_, rank());
  local_rank_ = place.rank;
  local_size_ = place.size;
}

std::unique_ptr<Bootstrap> make_bootstrap(const BootstrapOptions& options) {
  open_closed_standard_streams();  // before any socket
  if (const auto job = explicit_job(options))
    return job->size == 1 ? make_single_bootstrap() : make_tcp_bootstrap(*job);
  if (const auto launch = detect_mpi_launcher())
    return make_mpi_bootstrap(*launch, join_timeout(options));
  if (const auto job = detect_environment_job(options))
    return job->size == 1 ? make_single_bootstrap() : make_tcp_bootstrap(*job);
  return make_single_bootstrap();
}

}  // namespace lockstep::comm
