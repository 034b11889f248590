#include <algorithm>
#include <utility>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/names.hpp"

// Which parameters take part in a step: on this rank, on any, and whether as in the first one.

namespace lockstep::parallel {
namespace {

/// "rank 1: ". Of a reducer alone, as an averaging of parameters has, its number says nothing.
std::string rank_of(const comm::Communicator& group) {
  return group.size() > 1 ? detail::concat("rank ", group.rank(), ": ") : std::string();
}

}  // namespace

/// Those that this backward does not reach are ready before it has run.
void Reducer::mark_unused() {
  if (!options_.find_unused_parameters && !options_.static_graph) return;
  auto& unreached = participation_.unreached;
  if (!unreached || !options_.static_graph) {
    unreached.emplace();
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      if (!autograd::Engine::reaches(*leaves_[i])) unreached->push_back(i);
  }
  for (const std::size_t index : *unreached) mark_ready(index);
}

/// Before the parameter's bucket leaves, and where its gradient is final after that.
void Reducer::check_takes_part_as_before(std::size_t index) const {
  if (!options_.static_graph) return;
  const auto& [unreached, given, users, all_known] = participation_;
  const bool has_gradient = contributes(index);
  const bool is_kept = has_gradient && !begun_[index];  // from the step before
  const bool has_changed = has_data_ && !given.empty() && !is_kept && has_gradient != given[index];
  const bool is_new = all_known && has_gradient && users[index] == 0;
  LOCKSTEP_CHECK(!has_changed && !is_new, InvalidArgument, rank_of(*group_), "parameter ",
                 parameters_[index].first, " has ", has_gradient ? "a" : "no",
                 " gradient in this step, unlike in the first one, and static_graph promised that "
                 "all steps use the same parameters; find_unused_parameters allows changes");
}

void Reducer::check_all_ready() {
  if (next_bucket_ == buckets_.size()) return;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < ready_.size(); ++i)
    if (!ready_[i]) missing.push_back(i);
  std::string message = detail::concat(
      rank_of(*group_), "backward did not reach these parameters: ", names_of(parameters_, missing),
      ".");
  if (options_.static_graph)
    message +=
        " The first one did, and static_graph promised that all steps use the same parameters; "
        "find_unused_parameters allows changes";
  else if (!options_.find_unused_parameters)
    message +=
        " If that is intended, construct DistributedDataParallel with find_unused_parameters = "
        "true; "
        "otherwise let the loss use them or exclude them with set_requires_grad(false)";
  if (!is_captured()) group_->abort(message);
  throw InvalidArgument(message);
}

/// Of a static graph, until every rank has had data: one without counts as in its first step that
/// had some, and with what it accumulated before its data ended.
void Reducer::find_users() {
  auto& [unreached, given, users, all_known] = participation_;
  if (!options_.static_graph) {
    if (options_.find_unused_parameters) users = sum_over_ranks(has_gradient_);
    return;
  }
  if (has_data_ && given.empty()) given = has_gradient_;
  if (all_known) return;
  std::vector<bool> own = given;
  own.resize(parameters_.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (!has_data_ && has_gradient_[i]) own[i] = true;
  own.push_back(!given.empty());
  users = sum_over_ranks(own);
  all_known = users.back() == group_->size();
  users.pop_back();
}

std::vector<std::int32_t> Reducer::sum_over_ranks(const std::vector<bool>& used) const {
  const std::vector<std::int32_t> counts(used.begin(), used.end());
  const Tensor map = tensor<std::int32_t>(counts, group_->device());
  group_
      ->all_reduce({map.data_ptr(), map.numel(), map.dtype()}, comm::ReduceOp::sum(),
                   {.label = "used parameters", .id = id_of(buckets_.size())})
      .wait();
  return map.to_vector<std::int32_t>();
}

void Reducer::tell_of_unused() {
  const std::vector<std::int32_t>& users = participation_.users;
  if (users.empty()) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].gradients) continue;  // it is done, and freed
    std::vector<bool> unused;
    for (const std::size_t index : plan_[b].parameters) unused.push_back(users[index] == 0);
    buckets_[b].gradients->note_unused(std::move(unused));
  }
}

/// Gradients that any rank contributed to now count as present, the others as absent. They are set,
/// not added: an average is no contribution, and hooks have seen those.
void Reducer::take_over_results() {
  const std::vector<std::int32_t>& users = participation_.users;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (users.empty() || users[i] > 0) leaves_[i]->set_gradient(gradients_[i]);
}

}  // namespace lockstep::parallel
