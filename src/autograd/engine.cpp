#include "lockstep/autograd/engine.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "autograd/name_place.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/autograd/gradient_memory.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/place.hpp"
#include "lockstep/autograd/record.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "lockstep/tensor/factories.hpp"
#include "tensor/ownership.hpp"
#include "tensor/read_note.hpp"

namespace lockstep::autograd {
namespace {

std::atomic<std::uint64_t> runs{0};
thread_local Engine* running = nullptr;
thread_local std::uint64_t ops = 0;

bool earlier(const Node* a, const Node* b) { return a->sequence() < b->sequence(); }

// Stands in for the count of edges in a node that the engine has run.
constexpr std::uint32_t done = ~std::uint32_t{0};

}  // namespace

Engine::Engine(bool retain_graph, EdgesOfNodes* edges, bool create_graph)
    : retain_graph_(retain_graph),
      create_graph_(create_graph),
      edges_(edges),
      run_(++runs),
      outer_(std::exchange(running, this)) {}

Engine::~Engine() {
  for (Overlap& overlap : overlaps_) {
    overlap.node->run_ = overlap.run;
    overlap.node->waiting_ = overlap.waiting;
    if (overlap.node->is_leaf())
      static_cast<LeafNode*>(overlap.node)->exchange_collected(std::move(overlap.collected));
  }
  running = outer_;
}

void Engine::run(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                 bool retain_graph, EdgesOfNodes* edges, bool create_graph) {
  const GradModeGuard recording(create_graph);
  // The dtypes of a backward are those of its forward.
  const AutocastModeGuard no_autocast;
  Engine engine(retain_graph, edges, create_graph);
  engine.count_edges(roots);
  try {
    for (const GraphTag tag : engine.tags_) begin_backward_through(tag);
    engine.propagate(roots, gradients);
    engine.finish();
  } catch (...) {
    engine.name_place_of_failure();
    engine.drop_gradients(roots);
    for (const Callback& callback : engine.callbacks_)
      if (callback.failed) callback.failed();
    throw;
  }
}

void Engine::finish() {
  while (!callbacks_.empty()) {
    const Callback first = std::move(callbacks_.front());
    callbacks_.erase(callbacks_.begin());
    first.completed();
  }
}

void Engine::propagate(std::span<const Tensor> roots, std::span<const Tensor> gradients) {
  for (std::size_t i = 0; i < roots.size(); ++i) seed(roots[i], gradients[i]);
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), earlier);
    Node* node = ready_.back();
    ready_.pop_back();
    process(*node);
  }
}

/// Changes the error that is being handled, if it comes from an op.
void Engine::name_place_of_failure() {
  if (!running_node_) return;
  try {
    throw;
  } catch (Error& error) {
    name_place(error, path_of(running_node_->place()));
  } catch (...) {
    // Of other types only those who throw them know what they say.
  }
}

void Engine::drop_gradients(std::span<const Tensor> roots) noexcept {
  std::vector<Node*> stack;
  const auto visit = [&](Node& node) {
    if (std::exchange(node.run_, 0) != run_) return;
    if (node.is_leaf()) static_cast<LeafNode&>(node).exchange_collected({});
    for (Tensor& gradient : node.gradients()) gradient = Tensor();
    stack.push_back(&node);
  };
  for (const Tensor& root : roots) visit(*node_of(root));
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (Edge& edge : edges_of(*node))
      if (edge.node) visit(*edge.node);
  }
}

void Engine::queue_callback(std::function<void()> completed, std::function<void()> failed) {
  LOCKSTEP_CHECK(running, InvalidArgument, "queue_callback works only during a backward");
  running->callbacks_.push_back({std::move(completed), std::move(failed)});
}

bool Engine::reaches(const Node& node) noexcept {
  for (const Engine* engine = running; engine; engine = engine->outer_)
    if (node.run_ == engine->run_) return true;
  return false;
}

bool Engine::reaches(GraphTag tag) noexcept {
  for (const Engine* engine = running; engine; engine = engine->outer_)
    if (std::ranges::find(engine->tags_, tag) != engine->tags_.end()) return true;
  return false;
}

bool Engine::goes_through(GraphTag tag) noexcept {
  return running && std::ranges::find(running->tags_, tag) != running->tags_.end();
}

int Engine::depth() noexcept {
  int depth = 0;
  for (const Engine* engine = running; engine; engine = engine->outer_) ++depth;
  return depth;
}

/// Keeps what the outer backwards have noted in a node for when this one has ended.
void Engine::keep_for_outer(Node& node) {
  const Engine* owner = outer_;
  while (owner && node.run_ != owner->run_) owner = owner->outer_;
  if (!owner) return;
  LOCKSTEP_CHECK(node.is_leaf() || node.waiting_ == done, InvalidArgument,
                 "a backward inside another reaches ", node.name(),
                 ", which the outer one has not run yet; detach() what the inner one starts from");
  overlaps_.push_back({&node, node.run_, node.waiting_, {}});
  if (node.is_leaf())
    overlaps_.back().collected = static_cast<LeafNode&>(node).exchange_collected({});
}

std::string_view Engine::running_op() noexcept {
  return running && running->running_node_ ? running->running_node_->name() : "no op";
}

std::uint64_t Engine::ops_begun() noexcept { return ops; }
void Engine::begin_op() noexcept { ++ops; }

void Engine::count_edges(std::span<const Tensor> roots) {
  std::vector<Node*> stack;
  GraphTag last_tag = 0;
  const auto visit = [&](Node& node) {
    if (node.run_ == run_) {
      ++node.waiting_;
      return;
    }
    LOCKSTEP_CHECK(!node.released_, InvalidArgument, "backward through ", node.name(),
                   " a second time: what it saved was freed by the first; pass retain_graph = true "
                   "there (create_graph where its gradients are part of this loss), or run the "
                   "forward again");
    if (outer_) [[unlikely]]
      keep_for_outer(node);
    // One with edges of its own reaches no parameter: whoever waits for those is not told.
    if (node.tag_ != last_tag && !edges_) {
      last_tag = node.tag_;
      if (std::ranges::find(tags_, last_tag) == tags_.end()) {
        check_open(last_tag);
        tags_.push_back(last_tag);
      }
    }
    node.run_ = run_;
    node.waiting_ = 1;
    for (Tensor& gradient : node.gradients()) gradient = Tensor();
    for (Edge& edge : edges_of(node)) edge.delivered = edge.summed = false;
    stack.push_back(&node);
  };
  for (const Tensor& root : roots) visit(*node_of(root));
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (Edge& edge : edges_of(*node))
      if (edge.node) visit(*edge.node);
  }
}

void Engine::seed(const Tensor& root, const Tensor& gradient) {
  if (thread_modes.noting_reads) note_read(gradient, "backward");
  Edge edge = edge_to(root);
  deliver(edge, gradient);
}

void Engine::process(Node& node) {
  begin_op();
  const auto gradients = node.gradients();
  if (node.hooks()) [[unlikely]] {
    std::erase_if(copies_, [&](const Copy& copy) { return copy.node == &node; });
    std::erase_if(known_sums_, [&](const KnownSums& known) { return known.node == &node; });
    node.hooks()->run(gradients);  // it may be another one now
  }
  const bool any =
      std::ranges::any_of(gradients, [](const Tensor& gradient) { return gradient.defined(); });
  if (any) {
    const TraceRange range(node.name(), TracePhase::backward);
    const PlaceGuard place(node.place());
    running_node_ = &node;
    if (create_graph_) [[unlikely]]
      check_differentiable(node);
    InputGradients inputs(*this, node);
    node.backward(inputs);
    running_node_ = nullptr;
    for (Tensor& gradient : gradients) gradient = Tensor();
  }
  if (!left_sums_.empty() || !copies_.empty() || !known_sums_.empty()) drop_byproducts(node);
  node.waiting_ = done;
  if (!retain_graph_) {
    node.released_ = true;
    node.release();
  }
  for (Edge& edge : edges_of(node))
    if (edge.node && !std::exchange(edge.delivered, true)) arrive(*edge.node);
}

void Engine::deliver(Edge& edge, Tensor gradient) {
  Node& node = *edge.node;
  edge.delivered = true;
  if (gradient.defined()) {
    if (gradient.dtype() != edge.dtype) [[unlikely]]
      gradient = gradient.to(edge.dtype);
    // It waits to be read while others add to the gradients of leaves.
    if (gradient.impl().storage->holds_gradient()) [[unlikely]]
      gradient = copied_from_gradient(gradient);
    if (node.is_leaf()) {
      static_cast<LeafNode&>(node).accumulate(std::move(gradient));
    } else {
      add_up(node.gradients()[edge.output], std::move(gradient));
    }
  }
  arrive(node);
}

/// Adds a contribution to what waits for a node.
void Engine::add_up(Tensor& slot, Tensor gradient) const {
  if (!slot.defined())
    slot = std::move(gradient);
  else if (!create_graph_ && InputGradients::is_exclusive(slot))
    slot.add_(gradient);
  else
    slot = add(slot, gradient);
}

void Engine::check_differentiable(const Node& node) const {
  LOCKSTEP_CHECK(node.is_differentiable(), Unsupported, "autograd::grad: the gradient of ",
                 node.name(),
                 " cannot be differentiated, so create_graph cannot be had through it; compute it "
                 "from other ops, or leave it out of what is differentiated twice");
}

void Engine::arrive(Node& node) {
  // Its count is another backward's now: of another thread, for one inside this puts it back.
  LOCKSTEP_CHECK(node.run_ == run_, InvalidArgument, "backward reaches ", node.name(),
                 " while another thread's does; let one wait for the other, or give each thread a "
                 "model of its own");
  if (--node.waiting_ != 0) return;
  if (node.is_leaf()) {
    const Node* const op = std::exchange(running_node_, nullptr);
    static_cast<LeafNode&>(node).finish();
    running_node_ = op;
    return;
  }
  ready_.push_back(&node);
  std::push_heap(ready_.begin(), ready_.end(), earlier);
}

bool InputGradients::is_exclusive(const Tensor& tensor) {
  return is_sole_owner(tensor) && (tensor.is_contiguous() || tensor.is_channels_last());
}

namespace {

/// The array of `value`, as output `output` of a node.
Tensor in_graph(const Tensor& value, IntrusivePtr<Node> node, std::uint32_t output) {
  Tensor placed = value.detach();
  placed.impl().node = std::move(node);
  placed.impl().output_index = output;
  return placed;
}

}  // namespace

Tensor InputGradients::operand(std::size_t i, const SavedTensor& saved) const {
  (void)edge(i);                        // there is one
  const Edge& made = node_.edges()[i];  // not of this run, which may lead elsewhere
  const Tensor& value = saved.get();
  if (!value.defined()) return value;
  if (!made.node) return value.detach();
  const Shape shape = made.node->output_shape(made.output).get();
  const Tensor shaped = no_grad([&] { return value.detach().reshape(shape); });
  if (value.dtype() == made.dtype) return in_graph(shaped, made.node, made.output);
  // Mixed precision converted it, and its gradient is converted back.
  return detail::attach(
      "to", shaped,
      Differentiable{[](const Tensor& dy, InputGradients& inputs) { inputs.set(0, dy); }}, [&] {
        return std::array{Edge{made.node, made.output, made.dtype}};
      });
}

Tensor InputGradients::result(const SavedTensor& saved, std::size_t output) const {
  return in_graph(saved.get(), IntrusivePtr<Node>(&node_), static_cast<std::uint32_t>(output));
}

namespace {

/// A gradient is linear in that of the result: it has its graph, if there is one.
void check_recorded(Node& node, const Tensor& gradient) {
  LOCKSTEP_CHECK(
      gradient.requires_grad() || std::ranges::none_of(node.gradients(), &Tensor::requires_grad),
      Unsupported, "backward of ", node.name(),
      ": it is Differentiable, but its gradient is not recorded; compute it by ops, from the "
      "gradient that it is given and from operand() and result(), where creates_graph()");
}

[[noreturn]] void refuse_in_place(const Node& node) {
  LOCKSTEP_THROW(Unsupported, "backward of ", node.name(),
                 ": it is Differentiable, but writes a gradient in place, which is not recorded; "
                 "hand over what ops compute by set(), where creates_graph()");
}

}  // namespace

void InputGradients::throw_no_operand(std::size_t i) const {
  LOCKSTEP_THROW(InvalidArgument, "backward of ", Engine::running_op(), ": there is no operand ", i,
                 ", the op has ", edges_.size(), "; they count from 0, as given to OpCall");
}

void InputGradients::check_first(std::size_t i) const {
  LOCKSTEP_CHECK(!edges_[i].delivered, InvalidArgument, "backward of ", Engine::running_op(),
                 ": the gradient of operand ", i, " was handed over twice; add the parts before");
}

void InputGradients::check_shape(std::size_t i, const Shape& shape) const {
  const auto& [node, output, dtype, delivered, summed] = edges_[i];
  LOCKSTEP_CHECK(node->output_shape(output) == shape, InvalidArgument, "backward of ",
                 Engine::running_op(), ": the gradient of operand ", i, " is of shape ", shape,
                 ", the operand of ", node->output_shape(output).get());
}

Shape InputGradients::operand_shape(std::size_t i) const {
  LOCKSTEP_CHECK(wanted(i), InvalidArgument, "backward of ", Engine::running_op(),
                 ": the shape of operand ", i,
                 " is not known, as its gradient is not wanted; ask "
                 "wanted() first");
  return edges_[i].node->output_shape(edges_[i].output).get();
}

void InputGradients::set(std::size_t i, Tensor gradient) {
  if (!wanted(i) || !gradient.defined()) return;
  check_first(i);
  check_shape(i, gradient.shape());
  if (creates_graph()) [[unlikely]]
    check_recorded(node_, gradient);
  engine_.deliver(edges_[i], std::move(gradient));
}

Tensor InputGradients::fresh(const Shape& shape, TensorOptions options) {
  return empty(shape, options);
}

GradientTarget InputGradients::target_of(std::size_t i, const Shape& shape, TensorOptions options) {
  if (creates_graph()) refuse_in_place(node_);
  check_first(i);
  check_shape(i, shape);
  Node& node = *edges_[i].node;
  if (node.is_leaf()) return static_cast<LeafNode&>(node).target(shape, options);
  // What waits leaves its slot until it comes back with this contribution in it.
  Tensor& waiting = node.gradients()[edges_[i].output];
  if (waiting.defined() && waiting.is_contiguous() && is_exclusive(waiting))
    return {std::exchange(waiting, Tensor()), true};
  return {empty(shape, options), false};
}

GradientTarget InputGradients::target_like(std::size_t i, const Tensor& like) {
  if (creates_graph()) refuse_in_place(node_);
  check_first(i);
  check_shape(i, like.shape());
  const Edge& edge = edges_[i];
  if (edge.node->is_leaf() || like.dtype() != edge.dtype) return {empty_like(like), false};
  Tensor& waiting = edge.node->gradients()[edge.output];
  if (waiting.defined() && waiting.strides() == like.strides() && is_exclusive(waiting))
    return {std::exchange(waiting, Tensor()), true};
  return {empty_like(like), false};
}

/// False for a gradient that is converted, and where another one goes to the same node: two targets
/// in one node would not know of each other.
bool InputGradients::is_written_in_place(std::span<const GradientPart> parts, std::size_t i) const {
  const Edge& own = edges_[parts[i].operand];
  bool is_shared = false;
  for (std::size_t j = 0; j < parts.size(); ++j)
    is_shared |= j != i && edge(parts[j].operand).node == own.node;
  return !is_shared && parts[i].options.dtype == own.dtype;
}

GradientTarget InputGradients::target_of_part(std::span<const GradientPart> parts, std::size_t i) {
  const auto& [operand, shape, options] = parts[i];
  if (is_written_in_place(parts, i)) return target_of(operand, shape, options);
  return {fresh(shape, options), false};
}

/// What was written in place is there before any hook runs.
void InputGradients::commit_part(std::span<const GradientPart> parts, std::size_t i,
                                 const Tensor& written) {
  Edge& edge = edges_[parts[i].operand];
  if (!is_written_in_place(parts, i)) return;
  if (!edge.node->is_leaf()) return engine_.deliver(edge, written);
  edge.delivered = true;
  static_cast<LeafNode&>(*edge.node).commit(written);
}

/// What was not is handed over then.
void InputGradients::arrive_part(std::span<const GradientPart> parts, std::size_t i,
                                 const Tensor& written) {
  if (!is_written_in_place(parts, i)) return set(parts[i].operand, written);
  Node& node = *edges_[parts[i].operand].node;
  if (node.is_leaf()) engine_.arrive(node);
}

void InputGradients::commit(std::size_t i, const Tensor& written) {
  Edge& edge = edges_[i];
  if (!edge.node->is_leaf()) return engine_.deliver(edge, written);
  edge.delivered = true;
  static_cast<LeafNode&>(*edge.node).commit(written);
  engine_.arrive(*edge.node);
}

}  // namespace lockstep::autograd
