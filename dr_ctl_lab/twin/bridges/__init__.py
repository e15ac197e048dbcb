"""A twin whose sites are joined by diverts and core bridges, a queue each, and by the ids that were processed."""
