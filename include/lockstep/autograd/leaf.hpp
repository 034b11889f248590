#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/node.hpp"

/// @file
/// Where gradients end: the node of a leaf tensor.

namespace lockstep {
class StepRehearsal;
}

namespace lockstep::autograd {

/// Where a backward may write a gradient without a copy.
struct GradientTarget {
  Tensor tensor;            ///< contiguous, of the operand's shape and dtype
  bool accumulate = false;  ///< add to what it holds instead of overwriting
};

class LeafNode;

/// What of the gradient of a leaf a sink leaves there in the end.
enum class GradientShare : unsigned char {
  whole,
  part,  ///< this rank's, of an array that ranks share out: a norm takes those of the others
  none,  ///< other leaves have the parts
};

/// Gives the gradients of leaves their memory, and hears when they are final: the reducer of data
/// parallelism. A leaf has at most one sink, and only that one may take itself away.
class GradientSink {
 public:
  /// Memory for the gradient of a leaf: contiguous, of its shape, dtype and device (at present, see
  /// `before_change`). Asked for when
  /// the first contribution arrives, so it need not exist before; it must stay until the gradient
  /// is cleared or given back. @param key the leaf, as named in LeafNode::set_sink.
  virtual Tensor memory_for(std::size_t key) = 0;
  /// The gradient is final for this backward. Comes after all hooks.
  virtual void on_final(std::size_t key) = 0;
  /// An optimizer is about to make a step, and the leaf is among its parameters, with a gradient or
  /// without. @throws InvalidArgument to refuse the step before anything of it is done.
  virtual void check_update(std::size_t /*key*/) const {}
  /// The gradient is about to be clipped, and how is said: the same on every rank that trains
  /// alike.
  virtual void on_clip(std::size_t /*key*/, std::string_view /*how*/) {}
  /// An optimizer is about to change the leaf, and says which update of its own it is, and with
  /// what options: the same on every rank that trains alike.
  virtual void on_update(std::size_t /*key*/, std::string_view /*how*/) {}
  /// An optimizer has changed the leaf, or has queued that on the current stream; in a captured
  /// step this comes once, when it is captured.
  virtual void after_update(std::size_t /*key*/) {}
  /// The optimizer has told of all leaves that it has changed. May come several times.
  virtual void after_updates() {}
  /// What the leaf has of its gradient after a backward.
  virtual GradientShare share(std::size_t /*key*/) const { return GradientShare::whole; }
  /// Whether backwards leave the average of several ranks' gradients.
  virtual bool is_averaged() const { return false; }
  /// What of the way in which ranks train the leaf may let its values differ between them: a
  /// sentence for messages. Empty if nothing does.
  virtual std::string why_ranks_differ() const { return {}; }
  /// The leaf is about to hold an array of another shape, dtype or device (Tensor::set_data):
  /// memory is asked for in that form from now on. A sink that shares out parameters allows what it
  /// does itself. @throws InvalidArgument to refuse, as a sink does that does not override it.
  virtual void before_change(std::size_t key, const Tensor& value);
  /// The gradient is cleared, or filled with zeros, also where there is none.
  virtual void on_clear(std::size_t /*key*/) noexcept {}
  /// Another sink has taken the leaf.
  virtual void on_taken(std::size_t key) noexcept = 0;

 protected:
  GradientSink() = default;
  ~GradientSink() = default;
};

/// Collects the gradient of a leaf, in memory of its own or of a *sink* that backward writes
/// straight into. Hooks fire once in each backward that reaches the leaf, when its gradient is
/// final; they may change it, replace it or clear it. The hooks of Tensor::register_hook come
/// first: while there are such, what a backward contributes is collected apart and added once they
/// saw it.
class LeafNode final : public Node {
 public:
  /// Called with the leaf whose gradient has just become final, on the thread that runs backward.
  using Hook = std::function<void(LeafNode&)>;

  /// The node of a leaf of the given shape, dtype and device.
  explicit LeafNode(const Tensor& tensor);

  /// The gradient; undefined if there is none.
  Tensor gradient() const { return gradient_; }
  /// Replaces the gradient; undefined clears it. With a sink, the values are copied there.
  /// @throws InvalidArgument for another shape, dtype or device.
  void set_gradient(const Tensor& gradient);
  /// Forgets the gradient. A sink stays, and its memory is overwritten by the next backward.
  void clear_gradient() noexcept;
  /// Fills the gradient, if there is one, with zeros.
  void zero_gradient();
  /// Whether there is a gradient to which a backward has added since it was filled with zeros. What
  /// is written to it by hand is not seen; set_gradient is.
  bool has_contributions() const noexcept { return gradient_.defined() && !is_zero_; }

  /// Lets the sink give the memory from now on, in the place of any other sink, which is told. A
  /// present gradient moves there, also if the sink is the same and has other memory now.
  /// @param key handed to the sink with each call.
  /// @throws InvalidArgument if what it gives for a present gradient does not fit; then nothing
  /// changes.
  void set_sink(GradientSink& sink, std::size_t key);
  /// Takes a sink away; nothing happens if the leaf has another. A present gradient moves to memory
  /// of its own.
  void release_sink(const GradientSink& sink);
  /// Asks the sink, if there is one, before an optimizer's step; see GradientSink::check_update.
  void check_update() const {
    if (sink_) sink_->check_update(sink_key_);
  }
  /// Tells the sink, if there is one, that the gradient is clipped; see GradientSink::on_clip.
  void announce_clip(std::string_view how) {
    if (sink_) sink_->on_clip(sink_key_, how);
  }
  /// Tells the sink, if there is one, of an optimizer's update; see GradientSink::on_update.
  void announce_update(std::string_view how) {
    if (sink_) sink_->on_update(sink_key_, how);
  }
  /// Tells the sink, if there is one, that the update is done; see GradientSink::after_update.
  void finish_update() {
    if (sink_) sink_->after_update(sink_key_);
  }
  /// Tells the sink, if there is one, that those of all leaves are; see
  /// GradientSink::after_updates.
  void finish_updates() {
    if (sink_) sink_->after_updates();
  }
  /// See GradientSink::share.
  GradientShare share() const { return sink_ ? sink_->share(sink_key_) : GradientShare::whole; }
  /// See GradientSink::is_averaged.
  bool is_averaged() const { return sink_ && sink_->is_averaged(); }
  /// See GradientSink::why_ranks_differ.
  std::string why_ranks_differ() const { return sink_ ? sink_->why_ranks_differ() : std::string(); }
  /// True if a sink gives the memory.
  bool has_sink() const noexcept { return sink_ != nullptr; }

  /// The leaf is about to hold the array of `value` instead of its own. Hooks and sink stay. A
  /// gradient stays where it fits, and is converted where dtype or device change. What was recorded
  /// before has the former shape, and can have its gradient only after that is back.
  /// @return which output of the node the leaf is now.
  /// @throws InvalidArgument if shape changes while there is a gradient, or the sink refuses
  /// another shape, dtype or device.
  std::uint32_t follow(const Tensor& value);

  /// Ignores contributions, as long as the tensor requires no gradient.
  void set_frozen(bool frozen) noexcept { frozen_ = frozen; }

  /// Adds a hook and returns a number to remove it by.
  std::uint64_t add_hook(Hook hook);
  /// Removes a hook; unknown numbers are ignored.
  void remove_hook(std::uint64_t id) noexcept;

  /// Adds a contribution to the gradient.
  void accumulate(Tensor contribution);
  /// Where an op may write its contribution of this form; it must call `commit` afterwards.
  /// @throws InvalidArgument if the leaf has another form since the op was recorded.
  GradientTarget target(const Shape& shape, TensorOptions options);
  /// For whoever reads the gradient to work with it: in a step that is captured, launches need it
  /// where it lies now.
  void note_use() { join_recording(true); }
  /// Takes what was written into `target`.
  void commit(const Tensor& written);
  /// Fires the hooks, then tells the sink.
  void finish();
  /// Exchanges what a backward has contributed but not added, for the hooks of the tensor.
  Tensor exchange_collected(Tensor other) noexcept {
    return std::exchange(collected_, std::move(other));
  }

  std::span<Edge> edges() noexcept override { return {}; }
  std::span<Tensor> gradients() noexcept override { return {}; }
  void backward(InputGradients&) override {}
  void release() noexcept override {}
  bool is_leaf() const noexcept override { return true; }

 private:
  bool has_form(const Shape& shape, TensorOptions options) const;
  void check_fits(const Shape& shape, TensorOptions options, std::string_view what) const;
  void check_fits(const Tensor& tensor, std::string_view what) const {
    check_fits(tensor.shape(), tensor.options(), what);
  }
  Tensor memory_of(GradientSink& sink, std::size_t key) const;
  bool collects() const noexcept;
  void collect(Tensor contribution);
  void add(Tensor contribution);
  void hold(Tensor gradient) noexcept;
  void move_to(Tensor memory) noexcept;
  class Captured;
  void join_recording(bool matters);
  void bring_into_usual_memory(const StepRehearsal& rehearsal);

  Shape shape_;
  std::vector<OutputShape> shapes_;  // all that it has had
  TensorOptions options_;
  Tensor gradient_;
  bool is_zero_ = false;  // by zero_gradient
  Tensor collected_;      // of the backward that runs, for the hooks of the tensor
  GradientSink* sink_ = nullptr;
  std::size_t sink_key_ = 0;
  bool frozen_ = false;
  std::uint64_t next_hook_ = 0;
  std::vector<std::pair<std::uint64_t, Hook>> hooks_;
};

/// The leaf node of a tensor. @throws InvalidArgument unless it is a leaf that requires a gradient.
LeafNode& leaf_of(const Tensor& tensor);
/// Fills the gradient of a leaf, if it has one, with zeros: also of one that is frozen, which shows
/// its gradient again when it is not. Other tensors have none.
void zero_gradient_of(const Tensor& tensor);
/// What of its gradient a tensor has after a backward.
GradientShare share_of(const Tensor& tensor);

}  // namespace lockstep::autograd
