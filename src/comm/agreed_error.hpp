#pragma once

#include <string_view>

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm {

/// Marks an error that every rank of the job throws alike, so that none needs to be told.
struct AgreedError {
  virtual ~AgreedError() = default;
};

/// An error of a type, so marked.
template <class Base>
struct Agreed : Base, AgreedError {
  using Base::Base;
};

/// Runs `choose` on every rank and exchanges the outcomes: if it threw anywhere, every rank throws
/// the first rank's error, Agreed. Every rank must call it.
/// @param what is chosen, for messages.
void agree_on_errors(Bootstrap& bootstrap, std::string_view what, FunctionRef<void()> choose);

}  // namespace lockstep::comm
