#include "lockstep/parallel/agreement.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/stragglers.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::parallel {
namespace {

std::vector<std::string> parts_of(const std::string& text, char end) {
  std::vector<std::string> parts;
  lockstep::detail::TextReader in(text);
  for (std::string part; std::getline(in, part, end);) parts.push_back(part);
  return parts;
}

}  // namespace

void check_same_parameters(comm::Communicator& group,
                           std::span<const std::pair<std::string, Tensor>> parameters) {
  lockstep::detail::TextStream out;
  for (const auto& [name, tensor] : parameters)
    out << name << ' ' << tensor.dtype() << ' ' << tensor.shape() << '\n';
  const std::vector<std::string> all =
      comm::all_gather_bytes(group, out.str(), "list of parameters");
  const std::vector<std::string> expected = parts_of(all[0], '\n');
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> actual = parts_of(all[rank], '\n');
    for (std::size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
      const std::string at_0 = i < expected.size() ? expected[i] : "nothing";
      const std::string here = i < actual.size() ? actual[i] : "nothing";
      LOCKSTEP_CHECK(at_0 == here, comm::Mismatch, "parameter ", i, " is \"", at_0,
                     "\" on rank 0 and \"", here, "\" on rank ", rank,
                     "; build the same model on every rank");
    }
  }
}

void check_same_settings(comm::Communicator& group,
                         std::span<const std::pair<std::string, std::string>> settings) {
  constexpr char end = '\0';
  std::string own;
  for (const auto& [name, value] : settings) own.append(name + end).append(value + end);
  const std::vector<std::string> all = comm::all_gather_bytes(group, own, "settings");
  const std::vector<std::string> expected = parts_of(all[0], end);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> actual = parts_of(all[rank], end);
    LOCKSTEP_CHECK(actual.size() == expected.size(), InvalidArgument, "rank ", rank, " has ",
                   actual.size() / 2, " settings but rank 0 has ", expected.size() / 2,
                   "; start the same program on every rank");
    for (std::size_t i = 0; i + 1 < expected.size(); i += 2) {
      LOCKSTEP_CHECK(actual[i] == expected[i], InvalidArgument, "rank ", rank, " has the setting ",
                     actual[i], " where rank 0 has ", expected[i],
                     "; start the same program on every rank");
      LOCKSTEP_CHECK(actual[i + 1] == expected[i + 1], InvalidArgument, expected[i], " is ",
                     expected[i + 1], " on rank 0 but ", actual[i + 1], " on rank ", rank,
                     "; it must be the same on every rank");
    }
  }
}

void check_same_value(comm::Communicator& group, std::string_view what, std::uint64_t value) {
  const auto all = comm::all_gather_bytes(group, std::to_string(value), what);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank] == all[0], comm::Mismatch, what, " is ", all[0], " on rank 0 but ",
                   all[rank], " on rank ", rank, "; it must be the same on every rank");
}

void broadcast_tensors(comm::Communicator& group, std::span<const Tensor> tensors, int root,
                       comm::CollectiveOptions options) {
  const NoGradGuard no_recording;
  std::map<DType, std::vector<Tensor>> by_dtype;
  for (const Tensor& tensor : tensors) by_dtype[tensor.dtype()].push_back(tensor.detach());
  for (auto& [dtype, members] : by_dtype) {
    std::int64_t total = 0;
    for (const Tensor& tensor : members) total += tensor.numel();
    const Tensor packed = empty({total}, {dtype, group.device()});
    std::int64_t at = 0;
    for (const Tensor& tensor : members) {
      packed.slice(0, at, at + tensor.numel()).reshape(tensor.shape()).copy_(tensor);
      at += tensor.numel();
    }
    const comm::Work work = group.broadcast({packed.data_ptr(), total, dtype}, root, options);
    if (StepTimes::current()) StepTimes::current()->add(work);
    work.wait();
    if (options.id != comm::CollectiveId{}) ++options.id.part;
    at = 0;
    for (Tensor& tensor : members) {
      tensor.copy_(packed.slice(0, at, at + tensor.numel()).reshape(tensor.shape()));
      at += tensor.numel();
    }
  }
}

}  // namespace lockstep::parallel
