#include "lockstep/comm/host_values.hpp"

#include <numeric>

#include "comm/value_staging.hpp"

namespace lockstep::comm {
namespace {

template <class T>
T all_reduce_value(Communicator& group, T value, ReduceOp reduction, std::string_view label) {
  ValueStaging staging(group.device(), sizeof value);
  staging.upload(&value, sizeof value);
  group.all_reduce({staging.data(), 1, dtype_of<T>}, reduction, {.label = label}).synchronize();
  staging.download(&value, sizeof value);
  return value;
}

template <class T>
T broadcast_value(Communicator& group, T value, int root, std::string_view label) {
  ValueStaging staging(group.device(), sizeof value);
  staging.upload(&value, sizeof value);
  group.broadcast({staging.data(), 1, dtype_of<T>}, root, {.label = label}).synchronize();
  staging.download(&value, sizeof value);
  return value;
}

}  // namespace

double all_reduce_scalar(Communicator& group, double value, ReduceOp reduction,
                         std::string_view label) {
  return all_reduce_value(group, value, reduction, label);
}

std::int64_t all_reduce_scalar(Communicator& group, std::int64_t value, ReduceOp reduction,
                               std::string_view label) {
  return all_reduce_value(group, value, reduction, label);
}

double broadcast_scalar(Communicator& group, double value, int root, std::string_view label) {
  return broadcast_value(group, value, root, label);
}

std::int64_t broadcast_scalar(Communicator& group, std::int64_t value, int root,
                              std::string_view label) {
  return broadcast_value(group, value, root, label);
}

std::string broadcast_bytes(Communicator& group, std::string_view bytes, int root,
                            std::string_view label) {
  std::string result = group.rank() == root ? std::string(bytes) : std::string();
  auto size = static_cast<std::int64_t>(result.size());
  const auto sizes = all_reduce_scalar(group, size, ReduceOp::max(), label);
  result.resize(static_cast<std::size_t>(sizes));
  ValueStaging staging(group.device(), result.size());
  staging.upload(result.data(), result.size());
  group.broadcast({staging.data(), sizes, DType::u8}, root, {.label = label}).synchronize();
  staging.download(result.data(), result.size());
  return result;
}

std::vector<std::string> all_gather_bytes(Communicator& group, std::string_view bytes,
                                          std::string_view label) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> sizes(ranks);
  const auto own = static_cast<std::int64_t>(bytes.size());
  {
    ValueStaging staging(group.device(), ranks * sizeof own);
    auto* slots = static_cast<std::int64_t*>(staging.data());
    std::int64_t* slot = slots + group.rank();
    staging.upload(&own, sizeof own, slot);
    group.all_gather({slot, 1, DType::i64}, {slots, group.size(), DType::i64}, {}, {.label = label})
        .synchronize();
    staging.download(sizes.data(), ranks * sizeof own);
  }
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total == 0) return std::vector<std::string>(ranks);
  const std::int64_t before =
      std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
  std::string joined(static_cast<std::size_t>(total), '\0');
  ValueStaging staging(group.device(), joined.size());
  auto* mine = static_cast<std::byte*>(staging.data()) + before;
  staging.upload(bytes.data(), bytes.size(), mine);
  group
      .all_gather({mine, own, DType::u8}, {staging.data(), total, DType::u8}, sizes,
                  {.label = label})
      .synchronize();
  staging.download(joined.data(), joined.size());

  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(joined.substr(begin, static_cast<std::size_t>(size)));
    begin += static_cast<std::size_t>(size);
  }
  return parts;
}

}  // namespace lockstep::comm
