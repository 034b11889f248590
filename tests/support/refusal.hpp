#pragma once

#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::testing {

/// The message of the error by which `call` is refused, or what happened instead.
template <class Kind = InvalidArgument, class Call>
std::string refusal(Call&& call) {
  try {
    static_cast<void>(call());
  } catch (const Kind& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace lockstep::testing
