#include "lockstep/parallel/divergence_check.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "backend/backend.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {
namespace {

/// A number for each tensor, i64 on their device.
Tensor fingerprints_of(std::span<const Tensor> tensors, Device device) {
  std::vector<Tensor> kept;
  std::vector<ArrayView> views;
  for (const Tensor& tensor : tensors) {
    kept.push_back(tensor.detach().contiguous());
    views.push_back(kept.back().view());
  }
  const Tensor out = zeros({static_cast<std::int64_t>(tensors.size())}, {DType::i64, device});
  backend::of(device).multi_tensor.fingerprint({.out = out.view(), .arrays = views},
                                               current_stream(device));
  return out;
}

std::string label_of(std::int64_t step) {
  return detail::concat("divergence check after step ", step);
}

/// "rank 2", "ranks 1, 2 and 3".
std::string list_of(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

/// The ranks that have other fingerprints than most have; of two halves, those without rank 0.
std::vector<std::size_t> odd_ranks(const std::vector<std::vector<std::int64_t>>& fingerprints) {
  std::map<std::vector<std::int64_t>, int> counts;
  for (const auto& of_rank : fingerprints) ++counts[of_rank];
  const std::vector<std::int64_t>* most = &fingerprints[0];
  for (const auto& of_rank : fingerprints)
    if (counts[of_rank] > counts[*most]) most = &of_rank;
  std::vector<std::size_t> odd;
  for (std::size_t rank = 0; rank < fingerprints.size(); ++rank)
    if (fingerprints[rank] != *most) odd.push_back(rank);
  return odd;
}

/// What of the way in which parameters are trained lets ranks have other values; empty: nothing.
std::string reason_to_differ(std::span<const Tensor> tensors) {
  std::string reason;
  for (const Tensor& tensor : tensors)
    if (reason.empty() && tensor.is_leaf() && tensor.requires_grad())
      reason = autograd::leaf_of(tensor).why_ranks_differ();
  return reason;
}

}  // namespace

DivergenceCheck::DivergenceCheck(NamedTensors tensors, CommunicatorPtr group,
                                 DivergenceCheckOptions options)
    : group_(std::move(group)), options_(options) {
  LOCKSTEP_CHECK(options_.every >= 1, InvalidArgument, "DivergenceCheck: every ", options_.every,
                 " steps; it must be at least 1");
  LOCKSTEP_CHECK(group_, InvalidArgument,
                 "DivergenceCheck: no group to compare over; give session.world()");
  check_same_parameters(*group_, tensors);
  for (auto& [name, tensor] : tensors) {
    LOCKSTEP_CHECK(tensor.device() == group_->device(), InvalidArgument, "DivergenceCheck: '", name,
                   "' is on ", tensor.device(), ", and the group on ", group_->device());
    names_.push_back(name);
    tensors_.push_back(tensor);
  }
}

void DivergenceCheck::step() {
  end();
  if (++steps_ % options_.every != 0) return;
  begin();
  if (group_->device().is_cpu()) end();  // the sum has been waited for
}

void DivergenceCheck::run() {
  end();
  begin();
  end();
}

// The largest of a number and of its complement tell whether all ranks have the same.
void DivergenceCheck::begin() {
  const Device device = group_->device();
  refuse_in_captured_step("DivergenceCheck", "call it behind the step", device);
  const NoGradGuard no_recording;
  const Tensor fingerprints = fingerprints_of(tensors_, device);
  const Tensor total = fingerprints_of(std::span(&fingerprints, 1), device);
  const Tensor both = empty({2}, {DType::i64, device});
  both.select(0, 0).copy_(total.select(0, 0));
  both.select(0, 1).copy_(total.select(0, 0)).mul_(-1).sub_(1);
  const std::string label = label_of(steps_);
  const Tensor extremes = all_reduce_async(both, *group_, comm::ReduceOp::max(), label).wait();
  pending_.emplace(Pending{steps_, fingerprints, HostCopy(extremes)});
}

void DivergenceCheck::end() {
  if (!pending_) return;
  const Pending check = *std::exchange(pending_, std::nullopt);
  const auto extremes = check.extremes.wait().to_vector<std::int64_t>();
  if (extremes[0] != -1 - extremes[1]) report(check);
  last_equal_ = check.step;
}

void DivergenceCheck::report(const Pending& check) const {
  const Tensor own = check.fingerprints.reshape({1, -1});
  const Tensor all = all_gather_async(own, *group_, label_of(check.step)).wait();
  const auto flat = all.to_vector<std::int64_t>();
  std::vector<std::vector<std::int64_t>> of_rank;
  for (auto from = flat.begin(); from != flat.end(); from += std::ssize(names_))
    of_rank.emplace_back(from, from + std::ssize(names_));
  const std::vector<std::size_t> odd = odd_ranks(of_rank);
  std::size_t other = 0;
  while (std::ranges::find(odd, other) != odd.end()) ++other;
  const auto &is = of_rank[odd[0]], &should = of_rank[other];
  std::vector<std::size_t> different;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (is[i] != should[i]) different.push_back(i);
  LOCKSTEP_THROW(comm::Mismatch, "replicas differ after step ", check.step, ": ", list_of(odd),
                 " of ", group_->name(), odd.size() == 1 ? " has" : " have", " other values than ",
                 odd.size() + 1 == of_rank.size() ? list_of({other}) : "the others", " in ",
                 different.size(), " of ", names_.size(), " tensors, first in '",
                 names_[different[0]], "'; ", advice());
}

std::string DivergenceCheck::advice() const {
  std::string text = last_equal_ ? detail::concat("all were equal after step ", *last_equal_, ". ")
                                 : "they were not compared before. ";
  const std::string reason = reason_to_differ(tensors_);
  if (!reason.empty()) text += reason + ". ";
  if (last_equal_)
    text += "Go on from a checkpoint of then; if it happens again there,";
  else
    text += reason.empty() ? "Give all ranks the same values before they train; if they had them,"
                           : "If that is so,";
  return text + " suspect that machine, or an update that is not the same on every rank";
}

}  // namespace lockstep::parallel
