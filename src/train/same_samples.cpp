#include "lockstep/train/same_samples.hpp"

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::train::detail {
namespace {

using lockstep::detail::concat;
using Loaders = std::vector<LoaderOfRank>;
static_assert(std::is_trivially_copyable_v<LoaderOfRank>);

Loaders gather(comm::Communicator& group, const LoaderOfRank& own) {
  const std::string_view bytes(reinterpret_cast<const char*>(&own), sizeof own);
  Loaders all;
  for (const std::string& each : comm::all_gather_bytes(group, bytes, "what loaders hand out")) {
    LOCKSTEP_CHECK(each.size() == sizeof own, InvalidArgument, "rank ", all.size(),
                   " is of another version of this library; start the same program on every rank");
    std::memcpy(&all.emplace_back(), each.data(), sizeof own);
  }
  return all;
}

/// @throws InvalidArgument where a rank has another value than rank 0.
template <class T>
void check_alike(const Loaders& all, const T& value_of, std::string_view what,
                 std::string_view advice) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(std::invoke(value_of, all[rank]) == std::invoke(value_of, all[0]),
                   InvalidArgument, "the loader's ", what, " is ", std::invoke(value_of, all[0]),
                   " on rank 0 but ", std::invoke(value_of, all[rank]), " on rank ", rank, "; ",
                   advice);
}

void check_seeds(const Loaders& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(!all[rank].is_seed_fixed || all[rank].seed == all[0].seed, InvalidArgument,
                   "the loader's seed is ", all[0].seed, " on rank 0 but ", all[rank].seed,
                   " on rank ", rank,
                   "; give all ranks the same DataLoaderOptions::seed, by which each sample has "
                   "its own random numbers, or leave it out");
}

bool have_own_data(const Loaders& all) {
  const data::LoaderShare& first = all[0].share;
  for (const LoaderOfRank& each : all)
    if (each.share.world_size == 1 &&
        (each.share.dataset != first.dataset || each.share.size != first.size))
      return true;
  return false;
}

/// How many ranks have each share. @throws InvalidArgument unless these are as many.
void check_shares(const Loaders& all, int replicas) {
  const int shares = all[0].share.world_size, ranks = static_cast<int>(all.size());
  LOCKSTEP_CHECK(ranks % shares == 0 && (replicas == 0 || shares == 1 || shares == replicas),
                 InvalidArgument, "the loader's world_size is ", shares, " on ",
                 replicas > 0 ? replicas : ranks,
                 " ranks; give it, or its sampler, session.rank() and session.size()");
  std::vector<int> counts(static_cast<std::size_t>(shares));
  for (int rank = 0; rank < ranks; ++rank) {
    const int share = all[static_cast<std::size_t>(rank)].share.rank;
    if (share < 0) return;  // the sampler does not tell
    ++counts[static_cast<std::size_t>(share)];
  }
  for (int share = 0; share < shares; ++share)
    LOCKSTEP_CHECK(counts[static_cast<std::size_t>(share)] == ranks / shares, InvalidArgument,
                   "the share of a loader's rank ", share, " of ", shares, " is handed out on ",
                   counts[static_cast<std::size_t>(share)], " ranks, where it should be ",
                   ranks / shares, "; give each rank's loader, or its sampler, session.rank()");
}

void check_samples(const Loaders& all, const SameSamplesOptions& options) {
  using data::LoaderShare;
  const auto check = [&](auto member, std::string_view what, std::string_view advice) {
    check_alike(
        all, [member](const LoaderOfRank& each) { return each.share.*member; }, what, advice);
  };
  check(&LoaderShare::world_size, "world_size", "give it, or its sampler, session.size()");
  const bool is_own = have_own_data(all);
  if (is_own && !options.are_saved) return;
  const std::string_view same_data =
      is_own ? "a checkpoint keeps one place for all ranks: give them the same data set, and the "
               "loader session.rank() and session.size()"
             : "give all ranks the same data set";
  check(&LoaderShare::size, "data set's size", same_data);
  check(&LoaderShare::dataset, "data set's signature", same_data);
  const bool may_be_own = all[0].share.world_size == 1 && all[0].share.dataset == 0;
  check(&LoaderShare::order, "sampler's signature",
        may_be_own ? "give the sampler the same seed and options on all ranks, or data sets that "
                     "are each rank's own a signature()"
                   : "give the sampler the same seed and options on all ranks");
  check(&LoaderShare::batch_size, "batch_size", "it must be the same on every rank");
  check(&LoaderShare::drop_last, "drop_last", "it must be the same on every rank");
  check(&LoaderShare::epoch, "epoch", "hand out as many batches on all ranks");
  check(&LoaderShare::samples, "place in the epoch", "hand out as many batches on all ranks");
  check_shares(all, options.replicas);
}

bool trains_all_on_all(const Loaders& all, const SameSamplesOptions& options) {
  return all[0].has_share && all[0].share.world_size == 1 && options.replicas != 1 &&
         all.size() > 1 && !have_own_data(all);
}

}  // namespace

std::uint64_t agree(comm::Communicator& group, LoaderOfRank own,
                    const SameSamplesOptions& options) {
  if (!own.is_seed_fixed) own.seed = default_generator().state().seed;
  const Loaders all = gather(group, own);
  check_alike(all, &LoaderOfRank::has_share, "kind", "start the same program on every rank");
  if (own.has_share) check_samples(all, options);
  check_seeds(all);
  if (group.rank() == 0 && trains_all_on_all(all, options))
    LOCKSTEP_LOG(warning, "each of ", options.replicas > 0 ? options.replicas : group.size(),
                 " ranks trains on all samples, in one order: the loader has no world_size; give "
                 "it, or its sampler, session.rank() and session.size()");
  return all[0].seed;
}

}  // namespace lockstep::train::detail
