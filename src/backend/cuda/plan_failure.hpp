#pragma once

#include <string_view>

/// @file
/// Tells a problem that cuDNN has no engine for, which goes another way, from all else that fails.
/// Without cuDNN's headers, so that it can be tested where there is no cuDNN.

namespace lockstep::backend {

/// What failed while cuDNN made a plan.
enum class PlanFailure : unsigned char {
  graph,    ///< the graph has a form that no engine takes
  engines,  ///< the heuristics gave no engine
  plans,    ///< none of the engines meets the wishes, or makes a plan
  call,     ///< a call of the library
  other     ///< how the graph was described
};

/// True if a message names a status. cuDNN's statuses have longer ones: ..._NOT_SUPPORTED_SHAPE.
inline bool names(std::string_view message, std::string_view status) {
  return message.find(status) != std::string_view::npos;
}

/// True if a message names a failure and no lack of support: of several engines, some may fail.
inline bool names_a_failure(std::string_view message) {
  return !names(message, "CUDNN_STATUS_NOT_SUPPORTED") &&
         (names(message, "CUDNN_STATUS_ALLOC_FAILED") ||
          names(message, "CUDNN_STATUS_EXECUTION_FAILED") ||
          names(message, "CUDNN_STATUS_INTERNAL_ERROR"));
}

/// True if cuDNN has no engine for a problem that is described rightly. @param message its own.
inline bool lacks_engine(PlanFailure failure, std::string_view message) {
  switch (failure) {
    case PlanFailure::graph: return true;
    case PlanFailure::engines:
    case PlanFailure::plans: return !names_a_failure(message);
    case PlanFailure::call: return names(message, "CUDNN_STATUS_NOT_SUPPORTED");
    case PlanFailure::other: break;
  }
  return false;
}

}  // namespace lockstep::backend
