#include "comm/session/device_choice.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "lockstep/observe/log.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::comm {
namespace {

// First letter of an outcome on the wire: what to throw on every rank.
enum Outcome : char { fine = '.', argument = 'a', unsupported = 'u', other = 'o' };

std::string outcome_of(FunctionRef<void()> choose) {
  try {
    choose();
    return {fine};
  } catch (const InvalidArgument& error) {
    return std::string{argument} + error.what();
  } catch (const Unsupported& error) {
    return std::string{unsupported} + error.what();
  } catch (const std::exception& error) {
    return std::string{other} + error.what();
  }
}

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

Device choose_gpu(Bootstrap& bootstrap, const std::string& wanted) {
  const std::optional<int> index = index_of(wanted);
  const int count = cuda_device_count();
  LOCKSTEP_CHECK(count > 0, Unsupported, "device ", wanted,
                 " was asked for, but this machine has no usable GPU or this build no CUDA; use "
                 "--device cpu or auto");
  if (!index) {
    LOCKSTEP_CHECK(bootstrap.local_size() <= count, Unsupported, bootstrap.local_size(),
                   " ranks on host ",
                   bootstrap.peers()[static_cast<std::size_t>(bootstrap.rank())].host, " but only ",
                   count, " GPUs: every rank needs its own");
    return cuda(bootstrap.local_rank());
  }
  LOCKSTEP_CHECK(*index < count, Unsupported, "device ", wanted, " does not exist: this host has ",
                 count, " GPUs, 0 to ", count - 1);
  LOCKSTEP_CHECK(bootstrap.local_size() == 1, Unsupported, "device ", wanted, " would be used by ",
                 bootstrap.local_size(),
                 " ranks of this host; use --device cuda, which gives each rank its own");
  return cuda(*index);
}

// With "auto" a single rank without a GPU puts the whole job on the CPU: one group, one backend.
Device choose_automatically(Bootstrap& bootstrap) {
  const bool has_gpu = cuda_device_count() >= bootstrap.local_size();
  const auto all = bootstrap.all_gather_bytes(has_gpu ? "1" : "0");
  const bool everywhere = std::ranges::all_of(all, [](const auto& text) { return text == "1"; });
  if (bootstrap.rank() == 0 && !everywhere)
    LOCKSTEP_LOG(info, "device auto: no GPU for every rank, so the job runs on the CPU");
  return everywhere ? cuda(bootstrap.local_rank()) : cpu;
}

// "cuda" for "cuda:1": hosts may differ in which GPU they use, not in whether.
void check_same_kind(Bootstrap& bootstrap, const std::string& wanted) {
  const auto all = bootstrap.all_gather_bytes(wanted.substr(0, wanted.find(':')));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank] == all[0], comm::Agreed<InvalidArgument>, "the device is ", all[0],
                   " on rank 0 but ", all[rank], " on rank ", rank,
                   "; it must be the same on every rank");
}

}  // namespace

void agree_on_errors(Bootstrap& bootstrap, FunctionRef<void()> choose) {
  for (const std::string& outcome : bootstrap.all_gather_bytes(outcome_of(choose))) {
    const std::string text = outcome.substr(std::min<std::size_t>(1, outcome.size()));
    switch (outcome.empty() ? char{other} : outcome[0]) {
      case fine: break;
      case argument: throw Agreed<InvalidArgument>(text);
      case unsupported: throw Agreed<Unsupported>(text);
      default: throw Agreed<Error>(text);
    }
  }
}

Device choose_device(Bootstrap& bootstrap, const std::string& wanted) {
  Device device = cpu;
  agree_on_errors(bootstrap, [&] {
    if (wanted != "auto" && wanted != "cpu") device = choose_gpu(bootstrap, wanted);
  });
  check_same_kind(bootstrap, wanted);
  return wanted == "auto" ? choose_automatically(bootstrap) : device;
}

}  // namespace lockstep::comm
