#include "comm/session/device_choice.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "comm/agreed_error.hpp"
#include "core/environment_switch.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/runtime/info.hpp"
#include "runtime/device_identity.hpp"

namespace lockstep::comm {
namespace {

std::optional<int> index_of(const std::string& wanted) {
  if (wanted == "cuda") return std::nullopt;
  constexpr std::string_view prefix = "cuda:";
  int index = -1;
  const char* end = wanted.data() + wanted.size();
  LOCKSTEP_CHECK(wanted.starts_with(prefix) &&
                     std::from_chars(wanted.data() + prefix.size(), end, index).ptr == end &&
                     index >= 0,
                 InvalidArgument, "device must be auto, cpu, cuda or cuda:N, got '", wanted, "'");
  return index;
}

// The indices of the GPUs that this rank may take: all that it sees, or the one asked for.
std::vector<int> candidates(const std::string& wanted) {
  if (wanted == "cpu") return {};
  const int count = cuda_device_count();
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (wanted == "auto") return all;
  const std::optional<int> index = index_of(wanted);
  LOCKSTEP_CHECK(count > 0, Unsupported, "device ", wanted,
                 " was asked for, but this machine has no usable GPU or this build no CUDA; use "
                 "--device cpu or auto");
  if (!index) return all;
  LOCKSTEP_CHECK(*index < count, Unsupported, "device ", wanted, " does not exist: this rank sees ",
                 count, " GPUs, 0 to ", count - 1);
  return {*index};
}

std::string identities_of(const std::vector<int>& indices) {
  std::string text;
  for (const int index : indices) text += cuda_device_identity(index) + ' ';
  return text;
}

// Which of its candidates each rank takes: the first that is free, else one whose owner can take
// another (augmenting paths of bipartite matching). GPUs are told apart by identity, as ranks may
// see different ones: a launcher that gives each rank a GPU of its own makes it number 0 for all of
// them.
class Assignment {
 public:
  explicit Assignment(const std::vector<std::string>& identities_by_rank) {
    for (const std::string& identities : identities_by_rank) {
      lockstep::detail::TextReader words(identities);
      candidates_.emplace_back(std::istream_iterator<std::string>(words),
                               std::istream_iterator<std::string>());
    }
    places_.assign(candidates_.size(), -1);
    for (std::size_t rank = 0; rank < candidates_.size(); ++rank) {
      std::set<std::string> asked;
      place(rank, asked);
    }
  }
  // By rank; -1 for one that is left without a GPU.
  const std::vector<int>& places() const { return places_; }

 private:
  bool place(std::size_t rank, std::set<std::string>& asked) {
    const auto& candidates = candidates_[rank];
    for (const bool may_displace : {false, true})
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const auto owner = owners_.find(candidates[i]);
        const bool is_free = owner == owners_.end();
        if (!is_free &&
            !(may_displace && asked.insert(candidates[i]).second && place(owner->second, asked)))
          continue;
        owners_[candidates[i]] = rank;
        places_[rank] = static_cast<int>(i);
        return true;
      }
    return false;
  }

  std::vector<std::vector<std::string>> candidates_;
  std::map<std::string, std::size_t> owners_;
  std::vector<int> places_;
};

Device choose_gpu(Bootstrap& bootstrap, const std::string& wanted, const std::vector<int>& indices,
                  const std::vector<int>& places) {
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    LOCKSTEP_CHECK(places[rank] >= 0, Unsupported, "rank ", rank, " on host ",
                   bootstrap.peers()[rank].host,
                   index_of(wanted) ? " asks for a GPU that a lower rank uses"
                                    : " sees no GPU that lower ranks leave: there are too few GPUs",
                   ": every rank needs its own (LOCKSTEP_SHARE_GPUS=1 with LOCKSTEP_COMM=shm lets "
                   "ranks share them)");
  return cuda(
      indices[static_cast<std::size_t>(places[static_cast<std::size_t>(bootstrap.rank())])]);
}

// With "auto" a single rank without a GPU puts the whole job on the CPU: one group, one backend.
Device choose_automatically(Bootstrap& bootstrap, const std::vector<int>& indices,
                            const std::vector<int>& places) {
  const bool everywhere = std::ranges::all_of(places, [](int place) { return place >= 0; });
  const auto served = std::ranges::count_if(places, [](int place) { return place >= 0; });
  if (bootstrap.rank() == 0 && !everywhere && served > 0)
    LOCKSTEP_LOG(warning, "device auto: there are GPUs for ", served, " of ", places.size(),
                 " ranks only, so the job runs on the CPU; start as many ranks as there are GPUs");
  if (!everywhere) return cpu;
  const int place = places[static_cast<std::size_t>(bootstrap.rank())];
  return cuda(indices[static_cast<std::size_t>(place)]);
}

// "cuda" for "cuda:1": hosts may differ in which GPU they use, not in whether.
// @return whether rank 0 has GPUs shared.
bool agree_on_kind(Bootstrap& bootstrap, const std::string& wanted, bool shares) {
  const std::string own = wanted.substr(0, wanted.find(':')) + (shares ? " shared" : "");
  const auto all = bootstrap.all_gather_bytes(own, "devices");
  const auto kind = [&](std::size_t rank) { return all[rank].substr(0, all[rank].find(' ')); };
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(kind(rank) == kind(0), comm::Agreed<InvalidArgument>, "the device is ", kind(0),
                   " on rank 0 but ", kind(rank), " on rank ", rank,
                   "; it must be the same on every rank");
  return all[0].ends_with(" shared");
}

// Where rank 0 has LOCKSTEP_SHARE_GPUS=1, each rank of a host takes the next GPU of those it sees.
// Of other ranks: whether they see any.
std::vector<int> shared_places(const Bootstrap& bootstrap, std::ptrdiff_t own_count,
                               const std::vector<std::string>& identities_by_rank) {
  std::vector<int> places;
  for (const std::string& identities : identities_by_rank)
    places.push_back(identities.empty() ? -1 : 0);
  if (own_count > 0)
    places[static_cast<std::size_t>(bootstrap.rank())] =
        static_cast<int>(bootstrap.local_rank() % own_count);
  return places;
}

}  // namespace

Device choose_device(Bootstrap& bootstrap, const std::string& wanted) {
  std::vector<int> indices;
  std::string identities;
  bool shares = false;
  agree_on_errors(bootstrap, "devices that ranks may take", [&] {
    shares = environment_switch("LOCKSTEP_SHARE_GPUS").value_or(false);
    indices = candidates(wanted);
    identities = identities_of(indices);
  });
  const bool are_shared = agree_on_kind(bootstrap, wanted, shares);
  if (wanted == "cpu") return cpu;
  const auto all = bootstrap.all_gather_bytes(identities, "identities of devices");
  const std::vector<int> places =
      are_shared ? shared_places(bootstrap, std::ssize(indices), all) : Assignment(all).places();
  return wanted == "auto" ? choose_automatically(bootstrap, indices, places)
                          : choose_gpu(bootstrap, wanted, indices, places);
}

}  // namespace lockstep::comm
