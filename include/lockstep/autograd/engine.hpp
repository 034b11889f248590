#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/autograd/saved_tensor.hpp"

/// @file
/// The backward pass.

namespace lockstep::autograd {

class Engine;

/// The gradient of one operand, as an op that computes several at once writes it.
struct GradientPart {
  std::size_t operand;
  Shape shape;
  TensorOptions options;
};

/// What is known of the sums of a gradient's columns without reading it.
struct ColumnSums {
  /// Some of the columns.
  struct Part {
    std::int64_t columns = 0;
    Tensor rows = {};  ///< [m, columns] in the gradient's dtype, with the same sums, or undefined
    Tensor weights = {};      ///< [m] in the statistics dtype, by which rows count; undefined: 1
    bool is_zero = false;     ///< the sums are 0
    std::uint64_t stamp = 0;  ///< the engine's note: of `rows` when they were passed on
  };
  Tensor totals = {};              ///< [columns] in the statistics dtype: the sums; or undefined
  std::array<Part, 3> parts = {};  ///< side by side all columns; or none
  /// True if there are parts, and nobody has changed their rows since.
  bool has_parts() const;
};

/// What an op may compute beside the gradient of an operand, since it has that at hand, and others
/// would read it again: gradients of biases (ADR 0042). What is undefined is not wanted.
struct GradientByproducts {
  GradientTarget dx_sums;  ///< [columns]: the sums of the gradient's columns, in its dtype
  Tensor dx_totals;        ///< [columns] in the statistics dtype: the sums alone
  Tensor dx_copy;          ///< the gradient in the dtype of what the op returned
  Tensor summand;          ///< [rows, columns] of another gradient, in that dtype
  GradientTarget sums;     ///< [columns] in the gradient's dtype: the sums of its columns
  ColumnSums known;        ///< of the summand
};

/// What a node's backward hands its results to. Gradients travel on as soon as they are set, so an
/// op sets its parameters' gradients first: their all-reduce can then start before the op goes on.
class InputGradients {
 public:
  /// True if operand `i` needs a gradient.
  /// @throws InvalidArgument, as all others here, if the op has no operand `i`.
  bool wanted(std::size_t i) const { return edge(i).node && !edge(i).summed; }
  /// The dtype in which operand `i` was given: mixed precision may have run the op in another. An
  /// op whose kernels can write the gradient in it passes it to `write` and saves a conversion.
  DType operand_dtype(std::size_t i) const { return edge(i).dtype; }
  /// The shape of operand `i` when the op was recorded, so that no op need keep it for its
  /// backward. @throws InvalidArgument if its gradient is not wanted: then it is not known.
  Shape operand_shape(std::size_t i) const;

  /// Hands over the gradient of operand `i`, converted to the operand's dtype; ignored if it is not
  /// wanted or undefined. @throws InvalidArgument for a second gradient of one operand, and, as
  /// all others here, for one of another shape than the operand's.
  void set(std::size_t i, Tensor gradient);

  /// Lets `write(out, accumulate)` produce the gradient of operand `i` in place: into the leaf's
  /// sink or present gradient where there is one, or into what other ops have contributed to the
  /// gradient of the operand's op so far, where nobody else can see that (then `accumulate` is
  /// true: add to what `out` holds), else into fresh memory. `out` is row-major, of the given
  /// shape. Not called if the gradient is not wanted.
  /// @param options what `write` computes in; if that is not the operand's dtype, the gradient is
  /// converted afterwards.
  template <class Write>
  void write(std::size_t i, const Shape& shape, TensorOptions options, Write&& write) {
    if (!wanted(i)) return;
    if (options.dtype != operand_dtype(i)) [[unlikely]] {
      const Tensor converted_later = fresh(shape, options);
      write(converted_later, false);
      return set(i, converted_later);
    }
    const GradientTarget target = target_of(i, shape, options);
    write(target.tensor, target.accumulate);
    commit(i, target.tensor);
  }

  /// The same for a gradient of `like`'s shape, dtype and order in memory (channels-last too):
  /// into what other ops have contributed so far where that lies alike, else into fresh memory.
  template <class Write>
  void write_like(std::size_t i, const Tensor& like, Write&& write) {
    if (!wanted(i)) return;
    GradientTarget target = target_like(i, like);
    write(target.tensor, target.accumulate);
    set(i, std::move(target.tensor));
  }

  /// The same for operands whose gradients one kernel computes: `write(targets)` is always called,
  /// with a GradientTarget for each part, its tensor undefined where the gradient is not wanted.
  /// All of them are there before the first leaf's hooks run, which may begin a backward that
  /// reaches another part's leaf. They are handed over in the order of the parts.
  template <std::size_t N, class Write>
  void write_together(const std::array<GradientPart, N>& parts, Write&& write) {
    std::array<GradientTarget, N> targets;
    for (std::size_t i = 0; i < N; ++i)
      if (wanted(parts[i].operand)) targets[i] = target_of_part(parts, i);
    write(std::as_const(targets));
    for (std::size_t i = 0; i < N; ++i)
      if (wanted(parts[i].operand)) commit_part(parts, i, targets[i].tensor);
    commit_sums();
    for (std::size_t i = 0; i < N; ++i)
      if (wanted(parts[i].operand)) arrive_part(parts, i, targets[i].tensor);
    arrive_sums();
  }

  /// For what `write_together` calls: what it is to compute beside the gradient of operand `i`.
  /// There is nothing of that gradient where hooks may change it, others add to it, or it is
  /// converted.
  /// @param dx where that gradient is written; may be undefined
  /// @param options those of gradients of biases
  /// @param returned dtype of what the op returned
  GradientByproducts byproducts(std::size_t i, const Tensor& dx, TensorOptions options,
                                DType returned);

  /// Lets the op that made operand `through`, if it can, compute the gradient of operand `i`, a
  /// bias, beside its own: the sums of the columns of `dy`, the gradient of the op's result, of
  /// [rows, columns], which nobody else may have. To be called before the gradient of `through` is
  /// handed over.
  /// @return false where that cannot be: then the op computes it.
  bool leave_column_sums(std::size_t i, std::size_t through, const Tensor& dy);

  /// Tells the op that made operand `i`, if that makes use of it, what the sums of the columns of
  /// its gradient `dx` are. To be called before that is handed over; nothing happens where it is
  /// not all of the op's gradient, or hooks may change it.
  void pass_column_sums(std::size_t i, const Tensor& dx, ColumnSums sums);
  /// What the op has been told of its own gradient.
  ColumnSums column_sums() const;

  /// True if nothing but this handle can see the array, so that it may be added to in place.
  static bool is_exclusive(const Tensor& tensor);

  /// The gradient of the op's result in another dtype: what came with it, or converted.
  Tensor converted(const Tensor& dy, DType dtype) const;

  /// True if this backward is recorded, for derivatives of its gradients (see Differentiable).
  bool creates_graph() const noexcept;
  /// Operand `i` with its place in the graph, in the dtype and with the values that the op saved of
  /// it; an undefined one stays so. @param saved of as many elements as the operand has
  Tensor operand(std::size_t i, const SavedTensor& saved) const;
  /// The op's result with its place in the graph. @param saved by SavedTensor::of_result
  Tensor result(const SavedTensor& saved, std::size_t output = 0) const;

 private:
  friend class Engine;
  const Edge& edge(std::size_t i) const {
    if (i >= edges_.size()) [[unlikely]]
      throw_no_operand(i);
    return edges_[i];
  }
  [[noreturn]] void throw_no_operand(std::size_t i) const;
  void check_first(std::size_t i) const;
  void check_shape(std::size_t i, const Shape& shape) const;
  static Tensor fresh(const Shape& shape, TensorOptions options);
  InputGradients(Engine& engine, Node& node);
  GradientTarget target_of(std::size_t i, const Shape& shape, TensorOptions options);
  GradientTarget target_like(std::size_t i, const Tensor& like);
  void commit(std::size_t i, const Tensor& written);
  bool is_written_in_place(std::span<const GradientPart> parts, std::size_t i) const;
  GradientTarget target_of_part(std::span<const GradientPart> parts, std::size_t i);
  void commit_part(std::span<const GradientPart> parts, std::size_t i, const Tensor& written);
  void arrive_part(std::span<const GradientPart> parts, std::size_t i, const Tensor& written);
  static bool completes(const Edge& edge, const Tensor& dx);
  GradientTarget sums_target(const Edge& bias, TensorOptions options);
  void commit_sums();
  void arrive_sums();

  struct Sums {
    IntrusivePtr<Node> leaf;
    Tensor written;
  };
  Engine& engine_;
  Node& node_;
  std::span<Edge> edges_;
  std::array<Sums, 2> sums_ = {};
};

/// Edges by the nodes they are to lead from.
using EdgesOfNodes = std::unordered_map<Node*, std::vector<Edge>>;

/// One backward pass: iterative, on the calling thread. Counts what reaches each node from the
/// roots, then runs nodes whose gradients are complete, latest first, and frees what they saved. A
/// backward may run inside another, in a hook or an op; both may reach the same leaves, but no op
/// that the outer one has yet to run.
class Engine {
 public:
  /// Propagates `gradients` of `roots` to all leaves. If an op or a hook throws, leaves keep what
  /// reached them before, and the nodes hold no gradients. The error of an op says in which layer
  /// it was recorded ("in blocks.3.fc1: ..."), while that is alive.
  /// @param edges where backward goes from some nodes, in the place of their own edges; who waits
  /// for backwards through a tag is told of none then, as it reaches no parameter
  /// @param create_graph whether backward is recorded itself; then `edges` must lead to no leaf
  /// @throws InvalidArgument if part of the graph was freed by an earlier backward; Unsupported for
  /// `create_graph` and an op whose backward cannot be recorded.
  static void run(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                  bool retain_graph, EdgesOfNodes* edges = nullptr, bool create_graph = false);

  /// Calls `completed` at the end of the backward that runs on this thread, after the last leaf. If
  /// that backward throws, or a callback before this one, calls `failed` instead, while the
  /// exception is the current one; it must not throw.
  /// @throws InvalidArgument outside a backward.
  static void queue_callback(std::function<void()> completed, std::function<void()> failed = {});

  /// True if the backward that runs on this thread, or one around it, reaches a node. Known from
  /// its beginning on.
  static bool reaches(const Node& node) noexcept;
  /// The same for any op with a tag.
  static bool reaches(GraphTag tag) noexcept;
  /// The same of the innermost backward alone.
  static bool goes_through(GraphTag tag) noexcept;
  /// How many backwards run on this thread, each inside another.
  static int depth() noexcept;

  /// Name of the op whose backward the calling thread runs, for messages; "no op" outside one, and
  /// in the hooks of leaves.
  static std::string_view running_op() noexcept;
  /// Number of ops that backwards have begun to run on the calling thread, and of `begin_op`: what
  /// an op was given is done with once there is another number.
  static std::uint64_t ops_begun() noexcept;
  /// For what stands in for several layers: the next one begins, and nothing that the one before
  /// was given is in use.
  static void begin_op() noexcept;

 private:
  friend class InputGradients;
  struct Callback {
    std::function<void()> completed, failed;
  };
  /// What an outer backward has noted in a node that this one reaches too.
  struct Overlap {
    Node* node;
    std::uint64_t run;
    std::uint32_t waiting;
    Tensor collected;  // of a leaf
  };

  /// Sums of the columns of `of` that the backward of `node` may compute: the gradient of a bias.
  struct LeftSums {
    const Node* node;
    Edge bias;
    Tensor of;
    ColumnSums known;
  };
  /// A gradient of a node's in the dtype that its backward reads.
  struct Copy {
    const Node* node;
    Tensor gradient;
  };
  /// What a node has been told of its gradient.
  struct KnownSums {
    const Node* node;
    ColumnSums sums;
  };

  Engine(bool retain_graph, EdgesOfNodes* edges, bool create_graph);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();
  std::span<Edge> edges_of(Node& node) {
    if (!edges_) [[likely]]
      return node.edges();
    const auto others = edges_->find(&node);
    return others == edges_->end() ? node.edges() : std::span<Edge>(others->second);
  }
  void count_edges(std::span<const Tensor> roots);
  void check_differentiable(const Node& node) const;
  void add_up(Tensor& slot, Tensor gradient) const;
  void keep_for_outer(Node& node);
  void finish();
  void propagate(std::span<const Tensor> roots, std::span<const Tensor> gradients);
  void drop_gradients(std::span<const Tensor> roots) noexcept;
  void name_place_of_failure();
  void seed(const Tensor& root, const Tensor& gradient);
  void process(Node& node);
  void deliver(Edge& edge, Tensor gradient);
  void arrive(Node& node);
  void drop_byproducts(const Node& node);

  bool retain_graph_, create_graph_;
  EdgesOfNodes* edges_;  // of this backward alone
  std::uint64_t run_;
  Engine* outer_;             // the backward in which this one runs
  std::vector<Node*> ready_;  // a heap, latest sequence on top
  std::vector<GraphTag> tags_;
  std::vector<Overlap> overlaps_;
  std::vector<Callback> callbacks_;
  std::vector<LeftSums> left_sums_;
  std::vector<Copy> copies_;
  std::vector<KnownSums> known_sums_;
  const Node* running_node_ = nullptr;  // whose own code runs
};

/// Of a node that the engine runs.
inline InputGradients::InputGradients(Engine& engine, Node& node)
    : engine_(engine), node_(node), edges_(engine.edges_of(node)) {}

/// As the engine does.
inline bool InputGradients::creates_graph() const noexcept { return engine_.create_graph_; }

}  // namespace lockstep::autograd
