#include "lockstep/autograd/grad.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "autograd/ops/common.hpp"
#include "autograd/partial_gradients.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {
namespace {

/// The end of a backward that is recorded: what has arrived there, with its graph, where a leaf
/// would add to an array.
class Collector final : public Node {
 public:
  explicit Collector(const Tensor& tensor) : Node("grad"), shape_(tensor.shape()) {
    set_output_shapes(&shape_);
  }
  std::span<Edge> edges() noexcept override { return {}; }
  std::span<Tensor> gradients() noexcept override { return {&arriving_, 1}; }
  void backward(InputGradients&) override { add(arriving_); }
  void release() noexcept override {}
  bool is_differentiable() const noexcept override { return true; }

  /// The gradient; one without a graph is an array of its own.
  Tensor take() {
    Tensor whole = std::exchange(gradient_, Tensor());
    return !whole.defined() || whole.requires_grad() ? whole : whole.clone();
  }
  void add(const Tensor& gradient) {
    gradient_ = gradient_.defined() ? lockstep::add(gradient_, gradient) : gradient;
  }

 private:
  OutputShape shape_;
  Tensor arriving_, gradient_;
};

/// How a part of a graph is run through.
struct Run {
  bool retain_graph = false, create_graph = false;
  bool ends_at_inputs = false;  // no input is seen through another
};

/// A tensor whose gradient is asked for.
struct Input {
  Input(const Tensor& tensor, const Run& run)
      : node(node_of(tensor)), output(node->is_leaf() ? 0 : tensor.impl().output_index) {
    if (run.create_graph)
      recorded = make_intrusive<Collector>(tensor);
    else
      collected = make_intrusive<LeafNode>(tensor);
  }
  /// What stands in the place of the node where backward ends there.
  IntrusivePtr<Node> end() const {
    return recorded ? IntrusivePtr<Node>(recorded) : IntrusivePtr<Node>(collected);
  }
  void add(const Tensor& gradient) const {
    recorded ? recorded->add(gradient) : collected->accumulate(gradient.clone());
  }
  Tensor take() const {
    if (recorded) return recorded->take();
    Tensor gradient = collected->gradient();
    collected->clear_gradient();
    return gradient;
  }

  IntrusivePtr<Node> node;
  std::uint32_t output;
  bool is_used = false;              // some output depends on it
  IntrusivePtr<LeafNode> collected;  // one of these two
  IntrusivePtr<Collector> recorded;
  Tensor passed;                      // the gradient, where backward goes on through the node
  std::optional<std::uint64_t> hook;  // that sees it
};

/// The part of a graph between outputs and inputs.
class Between {
 public:
  Between(std::span<const Tensor> outputs, std::span<const Tensor> inputs, const Run& run)
      : run_(run) {
    for (const Tensor& input : inputs)
      if (!find(input)) {
        numbers_.emplace(node_of(input).get(), inputs_.size());
        inputs_.emplace_back(input, run);
      }
    for (const Tensor& output : outputs) {
      if (!is_end(*node_of(output))) visit(*node_of(output));
      if (Input* const input = find(output)) input->is_used = true;
    }
  }
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;
  ~Between() {
    for (const Input& each : inputs_)
      if (each.hook) each.node->hooks()->remove(*each.hook);
  }

  bool is_used(const Tensor& input) { return find(input)->is_used; }

  /// Propagates the gradients of the outputs.
  void run(std::span<const Tensor> outputs, std::span<const Tensor> gradients) {
    EdgesOfNodes edges = cut();
    std::vector<Tensor> roots, seeds;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (leads_to_input(*node_of(outputs[i]))) {
        roots.push_back(outputs[i]);
        seeds.push_back(gradients[i]);
      } else if (Input* const input = find(outputs[i])) {
        input->add(gradients[i]);
      }
    }
    if (!roots.empty()) Engine::run(roots, seeds, run_.retain_graph, &edges, run_.create_graph);
  }

  /// What has arrived at an input, once its hooks have seen it.
  Tensor gradient_of(const Tensor& tensor) {
    Input& input = *find(tensor);
    if (input.passed.defined()) return input.passed;
    const Tensor collected = input.take();
    if (!collected.defined()) return {};
    std::vector<Tensor> outputs(std::max<std::size_t>(input.node->gradients().size(), 1));
    outputs[input.output] = collected;
    if (input.node->hooks()) input.node->hooks()->run(outputs);
    return input.passed = outputs[input.output];
  }

 private:
  Input* find(const Node& node, std::uint32_t output) {
    const auto [from, to] = numbers_.equal_range(&node);
    for (auto number = from; number != to; ++number) {
      Input& input = inputs_[number->second];
      if (node.is_leaf() || input.output == output) return &input;
    }
    return nullptr;
  }
  Input* find(const Tensor& tensor) { return find(*node_of(tensor), tensor.impl().output_index); }
  bool is_end(const Node& node) const { return run_.ends_at_inputs && numbers_.contains(&node); }
  bool leads_to_input(Node& node) const { return !is_end(node) && leads_.at(&node); }

  /// Finds out of all that a node reaches whether it leads to inputs: operands first.
  void visit(Node& root) {
    struct Open {
      Node* node;
      std::size_t next = 0;
    };
    std::vector<Open> stack;
    const auto open = [&](Node& node) {
      if (leads_.try_emplace(&node, false).second) stack.push_back({&node});
    };
    open(root);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      const std::span<Edge> edges = node->edges();
      if (next < edges.size()) {
        if (Node* const operand = edges[next++].node.get(); operand && !is_end(*operand))
          open(*operand);
        continue;
      }
      bool& leads = leads_.at(node);
      for (const Edge& edge : edges) {
        if (!edge.node) continue;
        Input* const input = find(*edge.node, edge.output);
        if (input) input->is_used = true;
        leads |= input || leads_to_input(*edge.node);
      }
      stack.pop_back();
    }
  }

  /// The edges of this part: those that leave it lead nowhere, and those to inputs, where backward
  /// has nothing to do beyond, to leaves of this call alone.
  EdgesOfNodes cut() {
    EdgesOfNodes part;
    for (const auto& [node, leads] : leads_) {
      if (!leads) continue;
      LOCKSTEP_CHECK(
          node->tag() == 0 || run_.retain_graph, InvalidArgument,
          "autograd::grad through a forward of a DistributedDataParallel, whose backward "
          "is to reach all parameters, on all ranks; give retain_graph or create_graph, which "
          "leave that backward to come, or call its module() (of one with zero_stage 3 while "
          "whole_parameters() are held), or use backward()");
      const std::span<Edge> own = node->edges();
      std::vector<Edge>& edges = part[node];
      edges.assign(own.begin(), own.end());
      for (Edge& edge : edges) {
        if (!edge.node || leads_to_input(*edge.node)) continue;
        Input* const input = find(*edge.node, edge.output);
        edge.node = input ? input->end() : IntrusivePtr<Node>();
        edge.output = 0;
      }
    }
    for (Input& each : inputs_)
      if (each.is_used && leads_to_input(*each.node))
        each.hook = each.node->make_hooks().add(
            each.output, [&each, constant = !run_.create_graph](const Tensor& gradient) {
              // Later ones are others' backwards. A constant is nobody else's: a seed comes as it
              // was given.
              if (!each.passed.defined())
                each.passed = constant ? gradient.detach().clone() : gradient;
              return Tensor();
            });
    return part;
  }

  const Run run_;
  std::vector<Input> inputs_;
  std::unordered_multimap<const Node*, std::size_t> numbers_;  // of inputs, by their nodes
  std::unordered_map<Node*, bool> leads_;                      // of all nodes that outputs reach
};

void check_recorded(const Tensor& tensor, const char* what, std::size_t number) {
  LOCKSTEP_CHECK(tensor.defined() && tensor.requires_grad(), InvalidArgument,
                 "autograd::grad: ", what, ' ', number,
                 tensor.defined() ? " requires no gradient" : " is undefined");
}

std::vector<Tensor> seeds_of(std::span<const Tensor> outputs, const std::vector<Tensor>& given) {
  LOCKSTEP_CHECK(given.empty() || given.size() == outputs.size(), InvalidArgument,
                 "autograd::grad: ", given.size(), " grad_outputs for ", outputs.size(),
                 " outputs; give one for each, or none");
  std::vector<Tensor> seeds(given);
  seeds.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!seeds[i].defined()) {
      LOCKSTEP_CHECK(output.numel() == 1, InvalidArgument, "autograd::grad: output ", i,
                     " of shape ", output.shape(),
                     " needs a gradient in grad_outputs; only a single element may go without");
      seeds[i] = ones(output.shape(), output.options());
    }
    check_alike("autograd::grad", output, seeds[i]);
    LOCKSTEP_CHECK(seeds[i].shape() == output.shape(), InvalidArgument,
                   "autograd::grad: grad_outputs has shape ", seeds[i].shape(), " for output ", i,
                   " of shape ", output.shape());
  }
  return seeds;
}

}  // namespace

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         const GradOptions& options) {
  for (std::size_t i = 0; i < outputs.size(); ++i) check_recorded(outputs[i], "output", i);
  for (std::size_t i = 0; i < inputs.size(); ++i) check_recorded(inputs[i], "input", i);
  const GradModeGuard recording(options.create_graph);
  const std::vector<Tensor> seeds = seeds_of(outputs, options.grad_outputs);
  Between part(outputs, inputs,
               {.retain_graph = options.retain_graph || options.create_graph,
                .create_graph = options.create_graph});
  for (std::size_t i = 0; i < inputs.size(); ++i)
    LOCKSTEP_CHECK(options.allow_unused || part.is_used(inputs[i]), InvalidArgument,
                   "autograd::grad: no output depends on input ", i, " of shape ",
                   inputs[i].shape(), "; leave it out, or set allow_unused");
  part.run(outputs, seeds);
  const AutocastModeGuard no_autocast;  // hooks of inputs run as in a backward
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(part.gradient_of(inputs[i]));
    LOCKSTEP_CHECK(options.allow_unused || gradients.back().defined(), InvalidArgument,
                   "autograd::grad: ops that use input ", i, " of shape ", inputs[i].shape(),
                   " pass it no gradient; leave it out, or set allow_unused");
  }
  return gradients;
}

std::vector<Tensor> partial_gradients(std::span<const Tensor> outputs,
                                      std::span<const Tensor> inputs, std::span<const Tensor> dys) {
  Between part(outputs, inputs,
               {.retain_graph = true, .create_graph = true, .ends_at_inputs = true});
  part.run(outputs, dys);
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs) gradients.push_back(part.gradient_of(input));
  return gradients;
}

}  // namespace lockstep::autograd
