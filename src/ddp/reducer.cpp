#include "lockstep/ddp/reducer.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/reachable.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/ddp/agreement.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::ddp {

Reducer::Reducer(std::vector<NamedParameter> parameters, comm::CommunicatorPtr group,
                 ReducerOptions options)
    : parameters_(std::move(parameters)), group_(std::move(group)), options_(options) {
  for (const auto& [name, tensor] : parameters_) {
    LOCKSTEP_CHECK(tensor.device() == group_->device(), InvalidArgument, "parameter ", name,
                   " is on ", tensor.device(), ", the group reduces on ", group_->device(),
                   "; move the model there before it is wrapped");
    leaves_.emplace_back(&autograd::leaf_of(tensor));
    name_memory(tensor.data_ptr(), tensor.nbytes(), name);
  }
  check_same_parameters(*group_, parameters_);
  std::vector<std::size_t> reverse_registration(parameters_.size());
  std::iota(reverse_registration.rbegin(), reverse_registration.rend(), std::size_t{0});
  build(reverse_registration);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    hooks_.push_back(leaves_[i]->add_hook([this, i](autograd::LeafNode&) { on_gradient(i); }));
}

Reducer::~Reducer() {
  for (BucketState& bucket : buckets_) {
    try {
      bucket.work.synchronize();
    } catch (...) {
      // The failure was, or will be, reported by whoever waits for the group next.
    }
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i]->remove_hook(hooks_[i]);
    try {
      leaves_[i]->set_sink({});
    } catch (...) {
      // Out of memory for a private copy: the gradient stays in the bucket, which it keeps alive.
    }
  }
}

void Reducer::build(std::span<const std::size_t> ready_order) {
  std::vector<ParameterInfo> infos;
  for (const auto& [name, tensor] : parameters_)
    infos.push_back({tensor.numel(), tensor.dtype(), tensor.device()});
  plan_ = plan_buckets(infos, ready_order, options_.bucket_caps);

  const NoGradGuard no_recording;
  std::vector<BucketState> buckets(plan_.size());
  bucket_of_.assign(parameters_.size(), 0);
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Bucket& bucket = plan_[b];
    // Zeros, so that the gaps between gradients never hold anything.
    buckets[b].array = zeros({bucket.numel}, {bucket.dtype, bucket.device});
    buckets[b].label = detail::concat("bucket ", b, " (", names_of(bucket.parameters), ")");
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const std::size_t index = bucket.parameters[k];
      const auto& [name, parameter] = parameters_[index];
      const Tensor gradient =
          buckets[b]
              .array.slice(0, bucket.offsets[k], bucket.offsets[k] + parameter.numel())
              .reshape(parameter.shape());
      name_memory(gradient.data_ptr(), gradient.nbytes(),
                  detail::concat("bucket ", b, ", gradient of ", name));
      leaves_[index]->set_sink(gradient);
      bucket_of_[index] = b;
    }
  }
  buckets_ = std::move(buckets);
}

void Reducer::rebuild_in_measured_order() {
  if (rebuilt_ || options_.find_unused_parameters || ready_order_.size() != parameters_.size())
    return;
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  const std::string_view own(reinterpret_cast<const char*>(order.data()),
                             order.size() * sizeof(order[0]));
  const std::string agreed = comm::broadcast_bytes(*group_, own, 0, "order of gradients");
  LOCKSTEP_CHECK(agreed.size() == own.size(), comm::Mismatch, "rank 0 has ",
                 agreed.size() / sizeof(order[0]), " parameters, this rank ", order.size());
  std::copy(agreed.begin(), agreed.end(), reinterpret_cast<char*>(order.data()));
  build(std::vector<std::size_t>(order.begin(), order.end()));
  rebuilt_ = true;
}

void Reducer::check_not_replaced() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    LOCKSTEP_CHECK(
        tensor.impl().node.get() == leaves_[i].get(), InvalidArgument, "parameter ", name,
        " was moved, converted or frozen after the model was wrapped; do that before, or "
        "wrap the model again");
  }
}

void Reducer::prepare(Mode mode, std::span<const Tensor> outputs) {
  LOCKSTEP_CHECK(!running_, InvalidArgument,
                 "the last backward did not end: a rank failed inside it; wrap the model again");
  check_not_replaced();
  mode_ = mode;
  accumulating_ = false;
  accumulations_ = mode == Mode::accumulate ? accumulations_ + 1 : 0;
  if (mode != Mode::reduce) return;
  ready_.assign(parameters_.size(), false);
  ready_order_.clear();
  next_bucket_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].waiting = plan_[b].parameters.size();
    buckets_[b].launched = false;
  }
  unused_.clear();
  if (options_.find_unused_parameters) find_unused(outputs);
}

void Reducer::find_unused(std::span<const Tensor> outputs) {
  const auto reached = autograd::reachable_leaves(outputs);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (!reached.contains(leaves_[i].get())) unused_.push_back(i);
}

void Reducer::set_accumulation_scope(bool open) noexcept {
  accumulation_scope_ = open;
  close_accumulation();
}

/// Forgets the permission to accumulate once nothing announced is left to do so: a later backward
/// that nobody announced must not pass for an accumulating one.
void Reducer::close_accumulation() noexcept {
  if (mode_ == Mode::accumulate && !accumulation_scope_ && accumulations_ == 0) mode_ = Mode::idle;
}

void Reducer::begin_accumulation() {
  if (std::exchange(accumulating_, true)) return;
  autograd::Engine::queue_callback([this] {
    accumulating_ = false;
    if (accumulations_ > 0) --accumulations_;
    close_accumulation();
  });
}

void Reducer::begin_backward() {
  running_ = true;
  trace_ = {};
  trace_.first_gradient = TraceClock::now();
  autograd::Engine::queue_callback([this] { finish_backward(); });
  for (const std::size_t index : unused_) mark_ready(index);
}

void Reducer::on_gradient(std::size_t index) {
  if (mode_ == Mode::accumulate) return begin_accumulation();
  LOCKSTEP_CHECK(
      mode_ == Mode::reduce, InvalidArgument, "backward reached parameter ",
      parameters_[index].first,
      " without a forward through the DistributedDataParallel wrapper; call the wrapper, "
      "not the module");
  if (!running_) begin_backward();
  LOCKSTEP_CHECK(!ready_[index], InvalidArgument, "parameter ", parameters_[index].first,
                 " became ready twice in one backward");
  mark_ready(index);
}

void Reducer::mark_ready(std::size_t index) {
  ready_[index] = true;
  ready_order_.push_back(index);
  --buckets_[bucket_of_[index]].waiting;
  launch_ready_buckets();
}

void Reducer::launch_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].waiting == 0)
    launch(next_bucket_++);
}

void Reducer::launch(std::size_t number) {
  BucketState& bucket = buckets_[number];
  const Bucket& plan = plan_[number];
  for (const std::size_t index : plan.parameters) {
    autograd::LeafNode& leaf = *leaves_[index];
    if (!leaf.gradient().defined()) Tensor(leaf.sink()).zero_();
  }
  trace_.buckets.push_back({bucket.label, bucket.array.nbytes(), TraceClock::now(), {}, {}});
  bucket.work = group_->all_reduce({bucket.array.data_ptr(), plan.numel, plan.dtype},
                                   comm::Reduction::average(), {.label = bucket.label});
  bucket.launched = true;
}

void Reducer::finish_backward() {
  trace_.backward_end = TraceClock::now();
  check_all_ready();
  std::vector<std::int32_t> users;
  if (options_.find_unused_parameters) users = reduce_used_map();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].work.wait();
    const auto times = buckets_[b].work.times();
    BucketTrace& trace = trace_.buckets[b];
    trace.started = times ? times->started : trace.launched;
    trace.finished = times ? times->finished : TraceClock::now();
  }
  trace_.synchronized = TraceClock::now();
  settle_gradients(users);
  rebuild_in_measured_order();
  running_ = false;
  mode_ = Mode::idle;
}

void Reducer::check_all_ready() {
  if (next_bucket_ == buckets_.size()) return;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < ready_.size(); ++i)
    if (!ready_[i]) missing.push_back(i);
  const std::string message = detail::concat(
      "rank ", group_->rank(), ": backward did not reach these parameters: ", names_of(missing),
      ". If that is intended, construct DistributedDataParallel with find_unused_parameters = "
      "true; "
      "otherwise let the loss use them or exclude them with set_requires_grad(false)");
  group_->abort(message);
  throw InvalidArgument(message);
}

std::vector<std::int32_t> Reducer::reduce_used_map() {
  std::vector<std::int32_t> users(parameters_.size());
  for (std::size_t i = 0; i < users.size(); ++i) users[i] = leaves_[i]->gradient().defined();
  const Tensor map = tensor<std::int32_t>(users, group_->device());
  group_
      ->all_reduce({map.data_ptr(), map.numel(), map.dtype()}, comm::Reduction::sum(),
                   {.label = "used parameters"})
      .wait();
  return map.to_vector<std::int32_t>();
}

/// Gradients that any rank contributed to now count as present, the others as absent.
void Reducer::settle_gradients(std::span<const std::int32_t> users) {
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (users.empty() || users[i] > 0) leaves_[i]->commit(leaves_[i]->sink());
}

std::string Reducer::names_of(std::span<const std::size_t> indices) const {
  constexpr std::size_t shown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(indices.size(), shown); ++i)
    names += (i ? ", " : "") + parameters_[indices[i]].first;
  if (indices.size() > shown) names += detail::concat(" and ", indices.size() - shown, " more");
  return names;
}

}  // namespace lockstep::ddp
