#include "lockstep/parallel/delayed_reduction.hpp"

#include <string_view>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/step_rehearsal.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {
namespace {

/// The view of another array that lies where `part` lies in `whole`.
Tensor same_part(const Tensor& part, const Tensor& whole, const Tensor& other) {
  const auto* const begin = static_cast<const char*>(whole.data_ptr());
  const auto* const at = static_cast<const char*>(part.data_ptr());
  const auto offset = (at - begin) / static_cast<std::ptrdiff_t>(size_of(whole.dtype()));
  return other.slice(0, offset, offset + part.numel()).reshape(part.shape());
}

}  // namespace

std::shared_ptr<DelayedReduction::Sent> DelayedReduction::start(GradBucket& bucket) {
  auto sent = std::make_shared<Sent>();
  sent->names = bucket.names();
  sent->array = bucket.buffer().clone();
  for (const Tensor& gradient : bucket.gradients())
    sent->gradients.push_back(same_part(gradient, bucket.buffer(), sent->array));
  sent->work.push_back(bucket.all_reduce(sent->array));
  return sent;
}

/// What the last backward has left for a parameter; undefined if there was none.
DelayedReduction::Average DelayedReduction::take(const std::string& name, const Tensor& gradient) {
  const auto node = averages_.extract(name);
  if (node.empty()) return {};
  const Average& average = node.mapped();
  LOCKSTEP_CHECK(
      average.value.shape() == gradient.shape() && average.value.dtype() == gradient.dtype(),
      InvalidArgument, "DelayedReduction: the average of ", name, " is of shape ",
      average.value.shape(), ", ", average.value.dtype(), ", its gradient of ", gradient.shape(),
      ", ", gradient.dtype(), "; each DistributedDataParallel needs a DelayedReduction of its own");
  return average;
}

BucketExchange DelayedReduction::exchange(GradBucket& bucket) {
  constexpr std::string_view what = "a DelayedReduction is under way from one step to the next,",
                             instead = "such steps run eagerly";
  refuse_in_captured_step(what, instead, bucket.buffer().device());
  if (StepRehearsal* const rehearsal = StepRehearsal::current())
    rehearsal->refuse(detail::concat(what, ' ', instead));
  const std::shared_ptr<Sent> sent = start(bucket);
  std::vector<Average> former;
  bool has_layout = true;
  for (std::size_t i = 0; i < bucket.names().size(); ++i) {
    former.push_back(take(bucket.names()[i], bucket.gradients()[i]));
    const Sent* const of = former.back().sent.get();
    has_layout &= of && of == former.front().sent.get();
    averages_[bucket.names()[i]] = {sent, sent->gradients[i]};
  }
  Tensor buffer = bucket.buffer();
  if (has_layout && former.front().sent->names == bucket.names()) {
    Sent& last = *former.front().sent;
    if (!last.work.empty()) co_await last.work.front();
    buffer.copy_(last.array);
    co_return;
  }
  // The first backward, and the one after the buckets were laid out again.
  for (std::size_t i = 0; i < former.size(); ++i) {
    Tensor gradient = bucket.gradients()[i];
    if (former[i].sent && !former[i].sent->work.empty()) former[i].sent->work.front().wait();
    if (former[i].value.defined())
      gradient.copy_(former[i].value.to(gradient.device()));
    else
      gradient.zero_();
  }
}

NamedTensors DelayedReduction::state_dict() {
  const NoGradGuard no_recording;
  NamedTensors state;
  for (const auto& [name, average] : averages_) {
    if (average.sent && !average.sent->work.empty()) average.sent->work.front().wait();
    state.emplace_back(name, average.value.to(cpu).clone());
  }
  return state;
}

void DelayedReduction::load_state_dict(const NamedTensors& state) {
  const NoGradGuard no_recording;
  std::map<std::string, Average> averages;
  for (const auto& [name, value] : state) {
    LOCKSTEP_CHECK(is_floating(value.dtype()), InvalidArgument,
                   "DelayedReduction::load_state_dict: ", name, " is ", value.dtype(),
                   "; averages of gradients are floating");
    averages[name] = {nullptr, value.clone()};
  }
  averages_ = std::move(averages);
}

}  // namespace lockstep::parallel
