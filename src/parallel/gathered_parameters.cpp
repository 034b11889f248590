#include "parallel/gathered_parameters.hpp"

#include <algorithm>
#include <utility>

#include "autograd/held_memory.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/memory_gate.hpp"
#include "parallel/names.hpp"

namespace lockstep::parallel {

/// Before the memory that a bucket's parameters do not have.
class GatheredParameters::Gate final : public RefCounted, public MemoryGate {
 public:
  Gate(GatheredParameters& owner, std::size_t bucket) : owner_(&owner), bucket_(bucket) {}
  void open(TensorImpl& tensor) override {
    LOCKSTEP_CHECK(
        owner_, InvalidArgument, "a parameter of shape ", tensor.shape,
        " is read that ranks shared out "
        "(zero_stage 3), and the DistributedDataParallel that could gather it has ended; "
        "take the values while whole_parameters() holds them");
    owner_->use(bucket_, tensor);
  }
  void leave() noexcept { owner_ = nullptr; }

 private:
  GatheredParameters* owner_;
  const std::size_t bucket_;
};

GatheredParameters::GatheredParameters(NamedTensors parameters, CommunicatorPtr group,
                                       std::span<const Bucket> plan, std::vector<Tensor> own,
                                       Identify identify, std::function<bool()> in_backward)
    : self_(std::make_shared<GatheredParameters*>(this)),
      parameters_(std::move(parameters)),
      group_(std::move(group)),
      buckets_(plan.size()),
      identify_(std::move(identify)),
      in_backward_(std::move(in_backward)) {
  for (const auto& [name, parameter] : parameters_) impls_.push_back(&parameter.impl());
  for (const TensorImpl* impl : impls_) exchanges_.push_back(impl->exchanges + 1);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    State& state = buckets_[b];
    state.own = own[b];
    state.parameters = plan[b].parameters;
    state.offsets = plan[b].offsets;
    state.numel = plan[b].numel;
    state.gate = make_intrusive<Gate>(*this, b);
    state.absent = Storage::borrow(nullptr, plan[b].bytes(), plan[b].device, state.gate);
    state.absent->set_gate(state.gate.get());
    state.own_version = state.own.impl().storage->version();
    point(state, state.absent);
  }
}

GatheredParameters::~GatheredParameters() {
  free_all();
  for (const State& state : buckets_) state.gate->leave();
}

/// Nothing that an op had in hand at an earlier one is used any more.
std::uint64_t GatheredParameters::moment() const noexcept {
  return modules_ + autograd::Engine::ops_begun();
}

/// Saved tensors compare exchanges and version: equal whenever the values are.
void GatheredParameters::point(const State& state,
                               const IntrusivePtr<Storage>& storage) const noexcept {
  for (std::size_t k = 0; k < state.parameters.size(); ++k) {
    const std::size_t index = state.parameters[k];
    if (!impls_[index]) continue;
    TensorImpl& impl = *impls_[index];
    impl.storage = storage;
    impl.data = storage->data()
                    ? static_cast<std::byte*>(storage->data()) +
                          static_cast<std::size_t>(state.offsets[k]) * size_of(impl.dtype)
                    : nullptr;
    impl.exchanges = exchanges_[index] + state.values;
  }
}

void GatheredParameters::use(std::size_t bucket, const TensorImpl& tensor) {
  State& state = buckets_[bucket];
  const auto is_it = [&](std::size_t i) { return impls_[i] == &tensor; };
  const auto known = std::ranges::find_if(state.parameters, is_it);
  LOCKSTEP_CHECK(known != state.parameters.end(), InvalidArgument, "a tensor of shape ",
                 tensor.shape,
                 " was given the array of a parameter that ranks share out "
                 "(zero_stage 3), which has none now; copy_ its values while whole_parameters() "
                 "holds them");
  LOCKSTEP_CHECK(allows_use(), InvalidArgument, "parameter ", parameters_[*known].first,
                 " is used outside of a forward or backward of its DistributedDataParallel, and "
                 "ranks share it out (zero_stage 3): call the wrapper, or read it while "
                 "whole_parameters() holds all, on every rank");
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  if (!state.array) start(bucket);
  wait_and_point(bucket);
  if (holds_ > 0) return;
  tidy(window);
  prefetch_after(bucket);
}

/// Who wants parameters now, in the words of all ranks.
std::string GatheredParameters::user() const {
  if (in_backward_()) return detail::concat("a backward after forward ", forwards_of_step_);
  if (forwards_ == 0) return "whole_parameters()";
  if (!trains_) return "a forward that is not recorded";
  return detail::concat("forward ", forwards_of_step_, " of its step, ",
                        reduces_ ? "whose backward reduces" : "under no_sync()");
}

void GatheredParameters::start(std::size_t bucket) {
  State& state = buckets_[bucket];
  auto array = std::make_unique<GatheredArray>(state.numel, state.own.options());
  auto* const memory = static_cast<std::byte*>(array->tensor().data_ptr());
  for (std::size_t k = 0; k < state.parameters.size(); ++k) {
    const auto& [name, parameter] = parameters_[state.parameters[k]];
    name_memory(memory + static_cast<std::size_t>(state.offsets[k]) * size_of(parameter.dtype()),
                parameter.nbytes(), name);
  }
  const std::string label =
      detail::concat("parameters of bucket ", bucket, " after ", state.updates, " updates, for ",
                     user(), " (", names_of(parameters_, state.parameters), ')');
  const comm::Work gather = group_->all_gather(
      {state.own.data_ptr(), state.own.numel(), state.own.dtype()},
      {memory, state.numel, state.own.dtype()}, {}, {.label = label, .id = identify_(bucket)});
  if (tell_ && ((forwards_ > 0 && trains_) || in_backward_())) tell_(gather);
  array->gather(gather);
  state.array = std::move(array);
}

void GatheredParameters::wait_and_point(std::size_t bucket) {
  State& state = buckets_[bucket];
  state.array->wait();
  state.in_use = true;
  state.done = false;
  state.used_at = moment();
  order_.push_back(bucket);
  point(state, state.array->tensor().impl().storage);
}

void GatheredParameters::prefetch_after(std::size_t bucket) {
  now_.push_back(bucket);
  if (!last_ || now_.size() >= last_->size() || (*last_)[now_.size() - 1] != bucket) return;
  const std::size_t next = (*last_)[now_.size()];
  if (!buckets_[next].array) start(next);
}

/// Lets go of what backward has done with, and of what came first, until few enough are left.
void GatheredParameters::tidy(std::size_t keeps) {
  const std::uint64_t now = moment();
  std::erase_if(former_, [&](const Former& each) { return each.let_go_at < now; });
  if (holds_ > 0) return;
  for (const std::size_t bucket : std::vector(order_))
    if (buckets_[bucket].done && buckets_[bucket].used_at < now) free(bucket);
  while (order_.size() > keeps) free(order_.front());
}

void GatheredParameters::free(std::size_t bucket) {
  if (!buckets_[bucket].array) return;
  note_loss(buckets_[bucket]);
  drop(bucket);
  check_kept();
}

void GatheredParameters::note_loss(const State& state) {
  if (state.array->is_written() && lost_.empty())
    lost_ = parameters_[state.parameters.front()].first;
}

void GatheredParameters::check_kept() {
  if (holds_ == 0)
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (buckets_[b].array && buckets_[b].array->is_written()) {
        note_loss(buckets_[b]);
        drop(b);
      }
  if (lost_.empty()) return;
  LOCKSTEP_THROW(InvalidArgument, "parameter ", std::exchange(lost_, {}),
                 ", or one of its bucket, was written to while it was gathered for a forward or "
                 "backward (zero_stage 3), which is lost; write while whole_parameters() holds "
                 "them");
}

void GatheredParameters::drop(std::size_t bucket) {
  State& state = buckets_[bucket];
  state.array->wait();  // one that nobody has used may be under way, and reads this rank's part
  former_.push_back({state.array->tensor(), moment()});
  forget(bucket);
}

void GatheredParameters::forget(std::size_t bucket) noexcept {
  State& state = buckets_[bucket];
  std::erase(order_, bucket);
  state.array.reset();
  state.in_use = false;
  point(state, state.absent);
}

void GatheredParameters::free_all() noexcept {
  if (holds_ > 0) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].array) continue;
    try {
      note_loss(buckets_[b]);
      drop(b);
    } catch (...) {
      forget(b);  // whoever uses the group next hears of the failure
    }
  }
  former_.clear();
}

/// Of this rank's part, by others than an update: a state dict that was loaded.
void GatheredParameters::notice_writes() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    State& state = buckets_[b];
    const std::uint32_t version = state.own.impl().storage->version();
    if (std::exchange(state.own_version, version) == version) continue;
    if (state.array) drop(b);
    ++state.values;
    point(state, state.absent);
  }
}

void GatheredParameters::begin_module() {
  ++modules_;
  tidy(window);
}

void GatheredParameters::let_go(std::size_t bucket) {
  buckets_[bucket].done = true;
  buckets_[bucket].used_at = moment();
  tidy(window);
}

void GatheredParameters::changed(std::size_t bucket) {
  free(bucket);
  State& state = buckets_[bucket];
  ++state.values;
  ++state.updates;
  state.own_version = state.own.impl().storage->version();
  point(state, state.absent);
}

void GatheredParameters::begin_sequence(std::vector<std::size_t>& last) {
  last_ = &last;
  now_.clear();
}

void GatheredParameters::end_sequence() {
  if (last_) *last_ = std::exchange(now_, {});
  last_ = nullptr;
}

void GatheredParameters::begin_forward(bool reduces) {
  if (forwards_ == 0 && !in_backward_()) {
    check_kept();
    if (holds_ == 0) notice_writes();
    trains_ = grad_enabled();
    reduces_ = reduces;
    forwards_of_step_ += trains_;
    begin_sequence(of_forward_);
  }
  ++forwards_;
}

void GatheredParameters::end_forward(bool keeps) noexcept {
  if (--forwards_ > 0 || in_backward_()) return;  // an op may be using what was gathered for it
  end_sequence();
  if (!keeps) free_all();
}

void GatheredParameters::begin_backward() {
  if (forwards_ == 0) {
    check_kept();
    if (holds_ == 0) notice_writes();
  }
  begin_sequence(of_backward_);
}

void GatheredParameters::end_backward() noexcept {
  end_sequence();
  if (forwards_ == 0) free_all();
}

void GatheredParameters::hold() {
  LOCKSTEP_CHECK(!in_backward_(), InvalidArgument,
                 "whole_parameters() inside a backward of its DistributedDataParallel, which uses "
                 "and lets go of them itself; call it before, or after");
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  if (forwards_ == 0) {
    check_kept();
    if (holds_ == 0) notice_writes();
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!buckets_[b].array) start(b);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!buckets_[b].in_use) wait_and_point(b);
  ++holds_;
}

void GatheredParameters::release() noexcept {
  if (--holds_ > 0) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) try {
      autograd::HeldMemory::bring_back_into(buckets_[b].array->tensor());
      take_over(buckets_[b]);
      drop(b);
    } catch (...) {
      forget(b);  // whoever uses the device next hears of its failure
    }
  if (!in_backward_()) former_.clear();
}

/// Keeps this rank's part of what was written to the parameters.
void GatheredParameters::take_over(State& state) {
  if (!state.array->is_written()) return;
  const NoGradGuard no_recording;
  const std::int64_t begin = state.own.numel() * group_->rank();
  state.own.copy_(state.array->tensor().slice(0, begin, begin + state.own.numel()));
  ++state.values;
  ++state.updates;
  state.own_version = state.own.impl().storage->version();
}

void GatheredParameters::leave_out(std::size_t parameter) noexcept { impls_[parameter] = nullptr; }

bool GatheredParameters::has_our_memory(const State& state,
                                        const TensorImpl* parameter) const noexcept {
  return parameter->storage == state.absent ||
         (state.array && parameter->storage == state.array->tensor().impl().storage);
}

void GatheredParameters::check_in_place() const {
  for (const State& state : buckets_)
    for (const std::size_t index : state.parameters)
      LOCKSTEP_CHECK(
          !impls_[index] || has_our_memory(state, impls_[index]), InvalidArgument, "parameter ",
          parameters_[index].first,
          " was given another array since the model was wrapped, which its optimizer would not "
          "change; copy_ values into it, or wrap the model again");
}

}  // namespace lockstep::parallel
