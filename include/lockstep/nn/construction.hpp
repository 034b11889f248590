#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/module.hpp"

/// @file
/// Finds modules that another module holds without having registered them.

namespace lockstep::nn {

/// The time in which `make` runs a module's constructor. Modules that are made meanwhile, or given
/// to the constructor, and that the new module keeps must belong to it by name, or nobody would
/// train, move or save them.
class Construction {
 public:
  /// Begins, inside the one that this thread is in.
  Construction() noexcept;
  Construction(const Construction&) = delete;
  Construction& operator=(const Construction&) = delete;
  ~Construction();

  /// Notes a module that the constructor is given; other arguments are none of its business.
  template <class T>
  void note_if_module(const T& argument) {
    if constexpr (requires { argument.share()->parameters(); }) note(argument.share());
  }
  /// The constructor is done. @throws InvalidArgument if `made` keeps a module that nobody has
  /// registered and that has parameters to train.
  void finish(const IntrusivePtr<Module>& made);

 private:
  struct Noted {
    IntrusivePtr<Module> module;
    std::uint32_t handles;  // those that are not the new module's
  };
  void note(IntrusivePtr<Module> module);

  Construction* outer_;
  std::vector<Noted> noted_;
};

}  // namespace lockstep::nn
