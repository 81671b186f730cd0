// What becomes of the exports while the server runs, for whoever tells others.
//
// Calls come from the reactor's thread, after the change is in force; the volume may be asked but
// neither removed nor resized from inside.
#pragma once

#include <string>

#include "rnbd-server/volume.h"

namespace rnbd {

class TargetObserver {
  public:
    // It can be asked for from now on.
    virtual void on_export_added(const Volume& volume) { static_cast<void>(volume); }
    // Nobody has it open any more, and its name is free.
    virtual void on_export_removed(const std::string& name) { static_cast<void>(name); }
    // geometry().size_bytes is another.
    virtual void on_export_resized(const Volume& volume) { static_cast<void>(volume); }
    // Ready, or waiting for its storage (Volume::state()).
    virtual void on_export_state(const Volume& volume) { static_cast<void>(volume); }
    // Others may open it than before.
    virtual void on_export_allow(const Volume& volume) { static_cast<void>(volume); }

  protected:
    ~TargetObserver() = default;
};

}  // namespace rnbd
