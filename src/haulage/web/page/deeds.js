// What the buttons of a card do, the same in the page and in the element: cancel, download, remove, ask again.

import { newKey } from "./api.js";

/** @import {Api} from "./api.js" */
/** @import {ExportRequest, Run} from "./contract.js" */

/**
 * @param {Api} api
 * @param {(run: Run) => void} changed
 * @returns {import("./card.js").Deeds}
 */
export function makeDeeds(api, changed) {
  /** After a refusal the card must show what the run has become meanwhile. @param {Run} run @param {() => Promise<Run | void>} deed */
  const doing = async (run, deed) => {
    try {
      changed((await deed()) ?? run);
    } catch (error) {
      changed(run);
      throw error;
    }
  };
  return {
    cancel: (run) => doing(run, () => api.cancel(run)),
    remove: (run) => doing(run, () => api.expire(run)),
    download: (run) => doing(run, () => download(api, run)),
    again: async (run) => {
      const { run: next } = await api.request(requestOf(run), newKey());
      changed(next);
    },
  };
}

/** Get one file: a fresh link for each click, because a link lives for minutes only. @param {Api} api @param {Run} run */
async function download(api, run) {
  const link = document.createElement("a");
  link.href = await api.mintFile(run);
  link.download = run.file?.name ?? "";
  link.hidden = true;
  document.body.append(link);
  link.click();
  link.remove();
}

/** The request that a run was made from, for "export again". @param {Run} run @returns {ExportRequest} */
function requestOf(run) {
  const { dataset, format, parameters, columns, options, compression } = run;
  return {
    dataset,
    format,
    parameters,
    ...(columns?.length ? { columns } : {}),
    ...(options && Object.keys(options).length ? { options } : {}),
    ...(compression ? { compression } : {}),
  };
}
