#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

// Serialisation of plans is not used; it would drag a JSON library in.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "cuda/scratch.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// A thin layer over cuDNN's graph API: problems are keys, plans are cached. Only the files of this
/// folder see cuDNN.

namespace lockstep::backend::cudnn {

namespace frontend = cudnn_frontend;
using frontend::graph::Graph;
using frontend::graph::Tensor_attributes;

/// Alignment of an array in bytes, up to the 16 that cuDNN takes for granted where it is not told.
inline std::int64_t alignment(const ArrayView& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data) | 16;
  return static_cast<std::int64_t>(address & ~(address - 1));
}

/// Everything that a plan depends on, flattened.
class Key {
 public:
  Key& add(std::int64_t value) {
    values_.push_back(value);
    return *this;
  }
  Key& add(const ArrayView& view) {
    add(static_cast<std::int64_t>(view.dtype)).add(view ? view.rank() : -1).add(alignment(view));
    if (view) values_.insert(values_.end(), view.shape.begin(), view.shape.end());
    if (view) values_.insert(values_.end(), view.strides.begin(), view.strides.end());
    return *this;
  }
  friend bool operator<(const Key& a, const Key& b) { return a.values_ < b.values_; }

 private:
  std::vector<std::int64_t> values_;
};

/// The calling thread's cuDNN handle of a device, set to the stream.
cudnnHandle_t handle_on(StreamRef stream);

/// What a graph asks of the engines that may run it.
struct Requirements {
  bool full_precision = false;  ///< no TF32 where operands are f32
  bool deterministic = true;    ///< sums in one order
};

class PlanTarget;

/// A graph with the engine chosen for it, or nothing where cuDNN has none.
class Plan {
 public:
  /// Null graph: unsupported.
  Plan() = default;
  /// Asks cuDNN's heuristics for an engine. @throws CudnnError for a graph that cuDNN does not
  /// understand, rather than lacks an engine for.
  Plan(std::unique_ptr<Graph> graph, const Requirements& requirements, const PlanTarget& target);

  bool supported() const { return graph_ != nullptr; }
  /// Queues the graph; `arrays` maps the tensors' uids to memory. @throws CudnnError.
  void run(std::unordered_map<std::int64_t, void*> arrays, StreamRef stream);

 private:
  static frontend::error_t build(Graph& graph, const Requirements& requirements,
                                 const PlanTarget& target);

  std::unique_ptr<Graph> graph_;
  std::int64_t workspace_ = 0;
};

/// The thread's plan for a key, made by `build` at first use.
template <class Build>
Plan& plan_for(std::map<Key, Plan>& plans, const Key& key, Build&& build) {
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  return plans.emplace(key, build()).first->second;
}

/// A graph over data of a dtype.
std::unique_ptr<Graph> new_graph(DType dtype);
/// Dimensions, strides and dtype of an array.
Tensor_attributes describe(const ArrayView& view, std::int64_t uid);
/// Makes a result of the graph an output, with the layout of the array it goes to. (Under the name
/// `bind` a call would be std::bind's, by the namespace of the argument.)
void write_to(const std::shared_ptr<Tensor_attributes>& tensor, const ArrayView& view,
              std::int64_t uid);

}  // namespace lockstep::backend::cudnn
