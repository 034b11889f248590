#include "lockstep/autograd/recomputation.hpp"

#include <bit>
#include <string>
#include <utility>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {
namespace {

/// In the place of a value stamp: a gradient, of which backward keeps copies, with other stamps.
constexpr std::uint64_t any_stamp = ~std::uint64_t{0};

/// Draws from another position on, until the end of scope.
class RandomGuard {
 public:
  explicit RandomGuard(const RandomPosition& position) { position.restore(); }
  RandomGuard(const RandomGuard&) = delete;
  RandomGuard& operator=(const RandomGuard&) = delete;
  ~RandomGuard() { before_.restore(); }

 private:
  RandomPosition before_;
};

/// True for a leaf that collects a gradient: it stays whoever saves it.
bool is_parameter(const Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

/// Keeps it, whatever is left to a part.
SavedTensor kept(const Tensor& tensor) {
  Recomputation* const part = std::exchange(thread_modes.recomputation, nullptr);
  SavedTensor saved(tensor);
  thread_modes.recomputation = part;
  return saved;
}

}  // namespace

/// What a SavedTensor keeps in place of its value.
class Recomputation::Slot final : public RefCounted {
 public:
  Slot(Recomputation& owner, std::size_t number, const Tensor& saved)
      : part(&owner), index(number), shape_(saved.shape()), dtype_(saved.dtype()) {}

  /// The value outside of any graph: nodes of the second run end with it.
  Tensor taken(const Tensor& value) const {
    LOCKSTEP_CHECK(value.shape() == shape_ && value.dtype() == dtype_, InvalidArgument,
                   "backward of ", Engine::running_op(),
                   ": a part of the forward that was run again for it saved a tensor ",
                   value.dtype(), ' ', value.shape(), ", the first time ", dtype_, ' ', shape_,
                   "; it has to do the same each time (see nn::checkpoint)");
    return value.impl().storage->holds_gradient() ? copied_from_gradient(value) : value.detach();
  }

  const IntrusivePtr<Recomputation> part;
  const std::size_t index;

 private:
  void destroy() noexcept override {
    part->slots_[index] = nullptr;
    if (index < part->values_.size()) part->values_[index] = {};
    delete this;
  }

  Shape shape_;
  DType dtype_;
};

Recomputation::Recomputation(std::function<void()> again)
    : again_(std::move(again)),
      autocast_(thread_modes.autocast_dtype),
      place_(current_place_id()) {}

Recomputation::RecordGuard::RecordGuard(Recomputation& part) noexcept
    : part_(part), previous_(std::exchange(thread_modes.recomputation, &part)) {
  if (!part.running_) part.within_ = previous_;
}

Recomputation::RecordGuard::~RecordGuard() {
  thread_modes.recomputation = previous_;
  part_.within_ = nullptr;
}

bool Recomputation::is_running() noexcept { return thread_modes.recomputing; }
bool Recomputation::is_open() noexcept {
  return thread_modes.recomputing || thread_modes.recomputation;
}

void Recomputation::add(Tensor& saved, std::uint64_t& stamp) {
  if (running_) {
    const std::size_t index = next_++;
    if (index < slots_.size() && slots_[index]) values_[index] = kept(slots_[index]->taken(saved));
    return;
  }
  slots_.push_back(nullptr);
  if (is_parameter(saved)) return;
  const auto slot = make_intrusive<Slot>(*this, slots_.size() - 1, saved);
  slots_.back() = slot.get();
  saved = empty({0});
  saved.impl().node = slot;
  stamp = SavedTensor::left_to_recomputation;
}

const Recomputation::Use* Recomputation::note(const Use& use) {
  if (!running_) {
    uses_.push_back(use);
    return nullptr;
  }
  // What came the first time alone, such as the update of statistics, is passed over.
  for (std::size_t at = next_use_; at < uses_.size(); ++at)
    if (uses_[at].op == use.op) {
      next_use_ = at + 1;
      return &uses_[at];
    }
  LOCKSTEP_THROW(InvalidArgument, "backward of ", Engine::running_op(),
                 ": a part of the forward that was run again for it comes to ", use.op,
                 ", as it did not the first time; it has to do the same each time (see "
                 "nn::checkpoint)");
}

void Recomputation::note_use(std::string_view op, const Tensor& operand) {
  const TensorImpl& read = operand.impl();
  const std::uint64_t stamp = read.storage->holds_gradient() ? any_stamp : read.value_stamp();
  const Use* const first = note({op, stamp});
  if (!running_ && within_) within_->note_use(op, operand);
  LOCKSTEP_CHECK(!first || first->stamp == any_stamp || first->stamp == stamp, InvalidArgument,
                 "backward of ", Engine::running_op(), ": a tensor of shape ", read.shape, " that ",
                 op,
                 " reads in a part of the forward that runs again for it (see nn::checkpoint) was "
                 "changed in place, or its array exchanged, after the forward; clone() it before "
                 "the change");
}

void Recomputation::note_choice(std::string_view op, double choice) {
  for (Recomputation* part = thread_modes.recomputation; part; part = part->within_) {
    const auto stamp = std::bit_cast<std::uint64_t>(choice);
    const Use* const first = part->note({op, stamp});
    LOCKSTEP_CHECK(!first || first->stamp == stamp, InvalidArgument, "backward of ",
                   Engine::running_op(), ": ", op,
                   " is another than the first time in a part of the forward that was run again "
                   "for it: a module went to training or evaluation in between (see "
                   "nn::checkpoint); go there after backward");
    if (part->running_) return;
  }
}

const Tensor& Recomputation::value_of(const Tensor& placeholder) {
  const Slot& slot = static_cast<const Slot&>(*placeholder.impl().node);
  return slot.part->value(slot.index);
}

const Tensor& Recomputation::value(std::size_t index) {
  if (index < values_.size() && values_[index].get().defined()) return values_[index].get();
  LOCKSTEP_CHECK(running_ || thread_modes.recomputation != this, InvalidArgument,
                 "autograd::grad inside a part of a forward that runs again in backward (see "
                 "nn::checkpoint): what its ops save is there only then; take the gradient outside "
                 "of that part, or leave the part out");
  LOCKSTEP_CHECK(!running_, InvalidArgument, "backward of ", Engine::running_op(),
                 ": the part of the forward that runs again for it asks for what it computes");
  run();
  return values_[index].get();
}

void Recomputation::run() {
  const GradModeGuard recorded(true);
  const AutocastModeGuard autocast(autocast_);
  const PlaceGuard place(place_);
  const RandomGuard random(random_);
  struct Running {
    Recomputation& part;
    bool within = std::exchange(thread_modes.recomputing, true);
    bool is_done = false;
    ~Running() {
      part.running_ = false;
      thread_modes.recomputing = within;
      if (!is_done) part.values_.clear();
    }
  } running{*this};
  running_ = true;
  const RecordGuard record(*this);
  next_ = next_use_ = 0;
  values_.assign(slots_.size(), SavedTensor());
  again_();
  LOCKSTEP_CHECK(next_ == slots_.size(), InvalidArgument, "backward of ", Engine::running_op(),
                 ": a part of the forward that was run again for it saved ", next_,
                 " tensors, the first time ", slots_.size(),
                 "; it has to do the same each time (see nn::checkpoint)");
  running.is_done = true;
}

}  // namespace lockstep::autograd
