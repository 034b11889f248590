#include "checkpoint/take_over.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/name_place.hpp"
#include "checkpoint/exchange.hpp"
#include "core/fault_list.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Lets a state load what a checkpoint has of it; what it refuses is told with both names.
template <class Load>
void take(const fs::path& checkpoint, const std::string& name, const Load& load) {
  try {
    load();
  } catch (Error& error) {
    autograd::name_place(error, detail::concat(io::in_quotes(name), " of ", checkpoint.string()));
    throw;
  }
}

/// "model: head.weight" of a line that says why that was not loaded.
std::string_view place_in(const std::string& line) {
  const std::size_t state = std::min(line.find(": "), line.size() - 1);
  return std::string_view(line).substr(0, line.find(": ", state + 1));
}

std::string lines_of(std::span<const std::string> lines) {
  detail::FaultList list;
  for (const std::string& line : lines) list.add() << line;
  return list.text();
}

/// On one rank.
class TakingOver {
 public:
  TakingOver(Loaded& loaded, const fs::path& checkpoint, bool partial, int rank)
      : loaded_(loaded),
        checkpoint_(checkpoint),
        partial_(partial),
        rank_(static_cast<std::size_t>(rank)) {}

  void take_tensors(const Registry& present, std::size_t i) {
    const auto& [name, state] = present.tensors[i];
    take_one(name, [&, &name = name, &state = state] { return tensors(i, name, state); });
    loaded_.tensors[i].clear();  // or all are there twice until the last is taken over
  }
  void take_values(const Registry& present) {
    for (const auto& [name, state] : present.values)
      take_one(name, [&, &name = name, &state = state] {
        values(name, state);
        return true;
      });
  }
  LoadReport report() { return std::move(report_); }

 private:
  /// @param take_it returns whether anything was taken.
  template <class TakeIt>
  void take_one(const std::string& name, const TakeIt& take_it) {
    try {
      bool is_loaded = false;
      take(checkpoint_, name, [&] { is_loaded = take_it(); });
      if (is_loaded) report_.loaded.push_back(name);
    } catch (const InvalidArgument& misfit) {
      if (!partial_) throw;
      report_.left.push_back(name + ": " + misfit.what());
    }
  }
  bool tensors(std::size_t i, const std::string& name, const TensorState& state) {
    NamedTensors& given = loaded_.tensors[i];
    if (!partial_ || !state.load_what_fits) {
      state.load(std::move(given));
      return true;
    }
    std::set<std::string> names;
    for (const auto& [tensor_name, tensor] : given) names.insert(tensor_name);
    const bool had_some = !names.empty();
    for (const std::string& line : state.load_what_fits(std::move(given))) {
      report_.left.push_back(name + ": " + line);
      names.erase(line.substr(0, line.find(": ")));  // an optimizer's lines are of parameters
    }
    return !names.empty() || !had_some;
  }
  void values(const std::string& name, const ValueState& state) const {
    const std::vector<NamedValues>& ranks = loaded_.values.ranks;
    const auto alike = loaded_.values.shared.find(name);
    if (alike != loaded_.values.shared.end())
      state.load(alike->second);
    else if (!state.load_on_new_rank)
      state.load(ranks[0].at(name));  // then each rank had its own
    else if (rank_ < ranks.size())
      state.load(ranks[rank_].at(name));
    else
      state.load_on_new_rank(ranks[0].at(name));
  }

  Loaded& loaded_;
  const fs::path& checkpoint_;
  const bool partial_;
  const std::size_t rank_;
  LoadReport report_;
};

/// On all ranks, in the words of rank 0: what is as it was before.
/// @throws InvalidArgument if ranks differ in what that is.
void tell_left(comm::Communicator& group, const fs::path& checkpoint, LoadReport& report) {
  std::string message;
  for (const std::string& line : report.left) append_text(message, line);
  message = comm::broadcast_bytes(group, message, 0, "what was not loaded");
  std::vector<std::string> first;
  for (std::string_view rest = message; !rest.empty();) first.emplace_back(take_text(rest));
  run_on_all(group, "all ranks load the same part", [&] {
    LOCKSTEP_CHECK(std::ranges::equal(report.left, first, {}, place_in, place_in), InvalidArgument,
                   "of ", checkpoint.string(), " it left", lines_of(report.left),
                   "\nas it was, and rank 0", lines_of(first));
  });
  report.left = std::move(first);
  if (report.left.empty() || group.rank() != 0) return;
  std::string loaded;
  for (const std::string& name : report.loaded) loaded += " " + name;
  LOCKSTEP_LOG(warning, "of ", checkpoint.string(), " was loaded:", loaded, "; ",
               report.left.size(), " left as it was:", lines_of(report.left));
}

}  // namespace

LoadReport take_over(comm::Communicator& group, Loaded& loaded, const fs::path& checkpoint,
                     const Registry& present, bool partial, std::span<const std::string> absent) {
  TakingOver taking(loaded, checkpoint, partial, group.rank());
  for (std::size_t i = 0; i < present.tensors.size(); ++i) {
    run_on_all(group, "tensors are taken over", [&] { taking.take_tensors(present, i); });
    fill_in_place(group, loaded.readings[i], loaded.former[i]);
  }
  run_on_all(group, "values are taken over", [&] { taking.take_values(present); });
  LoadReport report = taking.report();
  if (!partial) return report;
  std::vector<std::string> left;
  for (const std::string& name : absent) left.push_back(name + ": the checkpoint has none");
  report.left.insert(report.left.begin(), left.begin(), left.end());
  tell_left(group, checkpoint, report);
  return report;
}

}  // namespace lockstep::checkpoint
